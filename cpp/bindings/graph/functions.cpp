// Functions of arrays that are neither formulas nor products, as steps of networks and alone.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/arrays/without_gil.h"
#include "bindings/graph/network.h"
#include "bindings/register.h"
#include "graph/functions/function_step.h"
#include "graph/functions/nonzero_places.h"
#include "graph/functions/routed_rows.h"
#include "graph/functions/suppression.h"

namespace dlprim::bindings {
namespace {

void add_function(PyNetwork& network, const std::string& function,
                  const std::map<std::string, double>& numbers, const std::vector<int>& inputs,
                  const std::vector<int>& outputs, const std::string& label) {
    const ArrayCall call{
        .function = function, .numbers = numbers, .inputs = inputs, .outputs = outputs};
    network.add(function_step(network.core(), call, label));
}

void add_routed(PyNetwork& network, const py::list& experts, const std::vector<std::int64_t>& sizes,
                const std::array<int, 3>& values, const std::string& label) {
    RoutedRows routed{.sizes = sizes, .rows = values[0], .shares = values[1], .dst = values[2]};
    for (const py::handle expert : experts) {
        std::vector<const Network*>& own = routed.experts.emplace_back();
        for (const py::handle each : py::reinterpret_borrow<py::list>(expert)) {
            own.push_back(&each.cast<const PyNetwork&>().core());
        }
    }
    network.add(routed_rows_step(network.core(), routed, network.label_or_number(label)));
}

using FloatArray = py::array_t<float, py::array::c_style | py::array::forcecast>;

py::array_t<std::int64_t> kept_boxes_of(const FloatArray& boxes, const FloatArray& scores,
                                        std::int64_t most, double threshold, double least,
                                        bool is_centered) {
    const bool fits = boxes.ndim() == 3 && scores.ndim() == 3 && boxes.shape(2) == 4 &&
                      boxes.shape(0) == scores.shape(0) && boxes.shape(1) == scores.shape(2);
    if (!fits) {
        throw py::value_error("boxes are of " + std::string(py::str(boxes.attr("shape"))) +
                              " and scores of " + std::string(py::str(scores.attr("shape"))) +
                              ", expected (N, S, 4) and (N, C, S)");
    }
    const BoxScores given{.boxes = boxes.data(),
                          .scores = scores.data(),
                          .samples = scores.shape(0),
                          .classes = scores.shape(1),
                          .count = scores.shape(2),
                          .is_centered = is_centered};
    std::vector<std::int64_t> rows;
    {
        const WithoutGil without_gil;
        rows = kept_boxes(given, {.most = most, .threshold = threshold, .least = least});
    }
    py::array_t<std::int64_t> made({static_cast<py::ssize_t>(rows.size() / 3), py::ssize_t{3}});
    std::copy(rows.begin(), rows.end(), made.mutable_data());
    return made;
}

py::array_t<std::int64_t> nonzero_places_of(const py::array& x) {
    const char kind = x.dtype().kind();
    const bool is_native = x.dtype().byteorder() == '=' || x.dtype().byteorder() == '|';
    if (std::string("biuf").find(kind) == std::string::npos || x.itemsize() > 8 || !is_native) {
        throw py::type_error("x is of " + std::string(py::str(x.dtype())) +
                             ", expected numbers of at most 8 bytes in native byte order");
    }
    const auto dense = py::array::ensure(
        x, int{py::array::c_style} | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_});
    const FoundElements given{.data = dense.data(),
                              .bytes = static_cast<std::size_t>(dense.itemsize()),
                              .is_float = kind == 'f',
                              .shape = {dense.shape(), dense.shape() + dense.ndim()}};
    const std::int64_t count = count_nonzero(given);
    py::array_t<std::int64_t> made({std::max<py::ssize_t>(dense.ndim(), 1), py::ssize_t{count}});
    const WithoutGil without_gil;
    nonzero_places(given, count, made.mutable_data());
    return made;
}

}  // namespace

void register_array_functions(py::module_& module) {
    network_type(module).def("function", &add_function, py::arg("function"), py::arg("numbers"),
                             py::arg("inputs"), py::arg("outputs"), py::arg("label") = "");
    network_type(module).def("routed", &add_routed, py::keep_alive<1, 2>(), py::arg("experts"),
                             py::arg("sizes"), py::arg("values"), py::arg("label") = "");
    module.def("kept_boxes", &kept_boxes_of, py::arg("boxes"), py::arg("scores"), py::arg("most"),
               py::arg("threshold"), py::arg("least"), py::arg("is_centered"));
    module.def("nonzero_places", &nonzero_places_of, py::arg("x"));
}

}  // namespace dlprim::bindings
