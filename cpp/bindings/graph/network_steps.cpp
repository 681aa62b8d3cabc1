// Steps that are no primitive of their own: copies, rows of tables, and what only Python can run.
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/graph/network.h"
#include "bindings/register.h"
#include "graph/copy_step.h"
#include "graph/elements/fold_step.h"
#include "graph/elements/gather_step.h"
#include "graph/elements/indexed_step.h"
#include "graph/elements/map_step.h"
#include "graph/elements/placed_rows_step.h"
#include "graph/elements/scatter_step.h"
#include "graph/elements/top_step.h"
#include "graph/piece_cost.h"
#include "graph/piece_step.h"
#include "graph/repeat_step.h"

namespace dlprim::bindings {
namespace {

void add_copy(PyNetwork& network, int src, int dst, const std::string& label) {
    network.add(copy_step(network.core(), src, dst, label));
}

void add_gather(PyNetwork& network, int table, int indices, int dst, const std::string& label,
                int axis, const std::string& argument) {
    network.add(gather_step(
        network.core(),
        {.table = table, .indices = indices, .dst = dst, .axis = axis, .argument = argument},
        label));
}

// Values are the source, the indices, the updates or -1, and the result.
void add_indexed(PyNetwork& network, const std::array<int, 4>& values,
                 const std::tuple<int, int, std::string>& indexing, const std::string& label) {
    const auto& [axis, batch, how] = indexing;
    network.add(indexed_step(
        network.core(),
        {.src = values[0], .indices = values[1], .updates = values[2], .dst = values[3]},
        {.axis = axis, .batch = batch, .how = how}, label));
}

void add_top(PyNetwork& network, const std::array<int, 3>& values, int axis, bool largest,
             const std::string& label) {
    network.add(top_step(network.core(),
                         {.src = values[0], .values = values[1], .places = values[2]},
                         {.axis = axis, .largest = largest}, label));
}

// Exclusive and reverse, as in an AxisFold.
void add_fold(PyNetwork& network, int src, int dst, const std::string& function,
              const std::array<bool, 2>& how, const std::string& label) {
    network.add(fold_step(network.core(), {.src = src, .dst = dst},
                          {.function = function, .exclusive = how[0], .reverse = how[1]}, label));
}

// Function, type of the result, operands and number of each operation.
using MapOperations = std::vector<std::tuple<std::string, std::string, std::vector<int>, double>>;

void add_map(PyNetwork& network, const MapOperations& operations, const std::vector<int>& operands,
             int dst, const std::string& label) {
    std::vector<MapOperation> made;
    for (const auto& [function, dtype, inputs, number] : operations) {
        made.push_back({function, dtype, inputs, number});
    }
    network.add(map_step(network.core(), made, {.operands = operands, .dst = dst}, label));
}

void add_pieces(PyNetwork& network, const PyNetwork& piece, const PyNetwork* rest,
                const std::vector<int>& inputs, const std::vector<int>& results,
                const std::string& label) {
    network.add(piece_step(network.core(),
                           {.piece = piece.core(),
                            .rest = rest == nullptr ? nullptr : &rest->core(),
                            .inputs = inputs,
                            .results = results},
                           network.label_or_number(label)));
}

void add_repeat(PyNetwork& network, const PyNetwork& body,
                const std::pair<std::vector<int>, std::vector<int>>& inputs_and_states,
                const std::pair<std::vector<int>, std::vector<int>>& results_and_carried,
                bool reverse, const std::string& label) {
    network.add(repeat_step(network.core(),
                            {.body = body.core(),
                             .inputs = inputs_and_states.first,
                             .states = inputs_and_states.second,
                             .results = results_and_carried.first,
                             .carried = results_and_carried.second,
                             .reverse = reverse},
                            network.label_or_number(label)));
}

// The cache, rows, places, and what becomes of the cache.
void add_placed_rows(PyNetwork& network, const std::array<int, 4>& values,
                     const std::string& label) {
    const auto [cache, rows, places, dst] = values;
    network.add(placed_rows_step(network.core(),
                                 {.cache = cache, .rows = rows, .places = places, .dst = dst},
                                 network.label_or_number(label)));
}

void add_scatter_add(PyNetwork& network, int src, int indices, int dst, const std::string& label,
                     const std::string& argument) {
    network.add(scatter_add_step(network.core(),
                                 {.src = src, .indices = indices, .dst = dst, .argument = argument},
                                 network.label_or_number(label)));
}

std::int64_t rows_of_piece_on_this_machine(std::int64_t rows, const std::string& dtype,
                                           double flops, double weights,
                                           const std::vector<double>& row_bytes) {
    return rows_of_piece({.rows = rows,
                          .dtype = parse_dtype(dtype),
                          .flops = flops,
                          .weights = weights,
                          .row_bytes = row_bytes},
                         this_machine());
}

// Of each step weights, what it reads and writes of an image, and whether a chain may end there.
using ImageBytes = std::tuple<double, double, double, bool>;

std::pair<std::int64_t, std::int64_t> image_pieces_on_this_machine(
    std::int64_t images, const std::vector<ImageBytes>& steps) {
    std::vector<ImageStep> made;
    for (const auto& [weights, read, written, ends] : steps) {
        made.push_back({weights, read, written, ends});
    }
    const ImagePieces found = image_pieces(images, made, this_machine());
    return {found.steps, found.images};
}

// What a value of a call is to Python.
struct CalledValue {
    int value;
    NetworkTensor tensor;
    py::dtype dtype;
};

// A function of arrays that returns an array, or several. It gets copies of values, because it may
// keep what it gets for longer than a run has its memory.
class PythonCall {
public:
    PythonCall(py::function function, std::vector<CalledValue> inputs,
               std::vector<CalledValue> outputs, std::string label)
        : function_(std::move(function)),
          inputs_(std::move(inputs)),
          outputs_(std::move(outputs)),
          label_(std::move(label)) {}

    void run(const Addresses& at) const {
        py::tuple arguments(inputs_.size());
        for (std::size_t i = 0; i < inputs_.size(); ++i) {
            arguments[i] = array_on(inputs_[i], at).attr("copy")("C");
        }
        const py::object result = function_(*arguments);
        const py::tuple results =
            py::isinstance<py::tuple>(result) || py::isinstance<py::list>(result)
                ? py::tuple(result)
                : py::make_tuple(result);
        if (results.size() != outputs_.size()) {
            refuse("returned " + std::to_string(results.size()) + " arrays, expected " +
                   std::to_string(outputs_.size()));
        }
        for (std::size_t i = 0; i < outputs_.size(); ++i) copy(results[i], outputs_[i], at);
    }

private:
    // Without an owner: it must not outlive the run.
    static py::array array_on(const CalledValue& it, const Addresses& at) {
        return {it.dtype, it.tensor.shape, it.tensor.strides, at[it.value].data, py::none()};
    }

    void copy(const py::object& from, const CalledValue& to, const Addresses& at) const {
        const py::object made = py::module_::import("numpy").attr("asarray")(from);
        const auto array = py::reinterpret_borrow<py::array>(made);
        if (!array.dtype().equal(to.dtype) || !has_shape(array, to.tensor.shape)) {
            refuse("returned " + std::string(py::str(array.dtype())) + " " +
                   std::string(py::str(array.attr("shape"))) + ", expected " +
                   to.tensor.described());
        }
        py::module_::import("numpy").attr("copyto")(array_on(to, at), array);
    }

    [[noreturn]] void refuse(const std::string& sentence) const {
        throw py::value_error("the function of step " + label_ + " " + sentence);
    }

    py::function function_;
    std::vector<CalledValue> inputs_;
    std::vector<CalledValue> outputs_;
    std::string label_;
};

void add_call(PyNetwork& network, const py::function& function, const std::vector<int>& inputs,
              const std::vector<int>& outputs, const std::string& label) {
    const auto called = [&](const std::vector<int>& values) {
        std::vector<CalledValue> made;
        for (const int it : values)
            made.push_back({it, network.core().tensor(it), network.dtype(it)});
        return made;
    };
    const std::string named = network.label_or_number(label);
    // Made and destroyed with the GIL; copies of the step share it.
    const std::shared_ptr<const PythonCall> call(
        new PythonCall(function, called(inputs), called(outputs), named));
    network.add({.kind = "call",
                 .label = named,
                 .reads = inputs,
                 .writes = outputs,
                 .alone = true,
                 .run = [call](const Addresses& at) {
                     const py::gil_scoped_acquire with_gil;
                     call->run(at);
                 }});
}

}  // namespace

void register_network_steps(py::module_& module) {
    network_type(module)
        .def("copy", &add_copy, py::arg("src"), py::arg("dst"), py::arg("label") = "")
        .def("gather", &add_gather, py::arg("table"), py::arg("indices"), py::arg("dst"),
             py::arg("label") = "", py::arg("axis") = 0, py::arg("argument") = "")
        .def("indexed", &add_indexed, py::arg("values"), py::arg("indexing"), py::arg("label") = "")
        .def("top", &add_top, py::arg("values"), py::arg("axis"), py::arg("largest"),
             py::arg("label") = "")
        .def("fold", &add_fold, py::arg("src"), py::arg("dst"), py::arg("function"), py::arg("how"),
             py::arg("label") = "")
        .def("map", &add_map, py::arg("operations"), py::arg("operands"), py::arg("dst"),
             py::arg("label") = "")
        .def("pieces", &add_pieces, py::keep_alive<1, 2>(), py::keep_alive<1, 3>(),
             py::arg("piece"), py::arg("rest"), py::arg("inputs"), py::arg("results"),
             py::arg("label") = "")
        .def("repeat", &add_repeat, py::keep_alive<1, 2>(), py::arg("body"),
             py::arg("inputs_and_states"), py::arg("results_and_carried"), py::arg("reverse"),
             py::arg("label") = "")
        .def("placed_rows", &add_placed_rows, py::arg("values"), py::arg("label") = "")
        .def("scatter_add", &add_scatter_add, py::arg("src"), py::arg("indices"), py::arg("dst"),
             py::arg("label") = "", py::arg("argument") = "")
        .def("call", &add_call, py::arg("function"), py::arg("inputs"), py::arg("outputs"),
             py::arg("label") = "");
    module.def("image_pieces", &image_pieces_on_this_machine, py::arg("images"), py::arg("steps"));
    module.def("rows_of_piece", &rows_of_piece_on_this_machine, py::arg("rows"), py::arg("dtype"),
               py::arg("flops"), py::arg("weights"), py::arg("row_bytes"));
}

}  // namespace dlprim::bindings
