#include <cstdint>
#include <optional>
#include <string>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/register.h"
#include "primitives/linear.h"

namespace dlprim::bindings {
namespace {

namespace py = pybind11;

using Array = py::array_t<float, py::array::c_style>;

// Python's functional layer has checked shapes, types and overlap; these are the invariants.
void require_shape(const char* name, const Array& array, std::int64_t rows, std::int64_t columns) {
    if (array.ndim() != 2 || array.shape(0) != rows || array.shape(1) != columns) {
        throw py::value_error(std::string(name) + " has shape " +
                              std::string(py::str(array.attr("shape"))) + ", expected (" +
                              std::to_string(rows) + ", " + std::to_string(columns) + ")");
    }
}

void require_length(const char* name, const Array& array, std::int64_t length) {
    if (array.ndim() != 1 || array.shape(0) != length) {
        throw py::value_error(std::string(name) + " has shape " +
                              std::string(py::str(array.attr("shape"))) + ", expected (" +
                              std::to_string(length) + ",)");
    }
}

const float* data_or_null(const std::optional<Array>& array) {
    return array ? array->data() : nullptr;
}

void forward(const Array& src, const Array& weights, const std::optional<Array>& bias,
             const std::string& activation, Array& dst) {
    const LinearShape shape{.N = src.shape(0), .C = src.shape(1), .K = weights.shape(0)};
    require_shape("weights", weights, shape.K, shape.C);
    require_shape("dst", dst, shape.N, shape.K);
    if (bias) require_length("bias", *bias, shape.K);
    const LinearForward tensors{.src = src.data(),
                                .weights = weights.data(),
                                .bias = data_or_null(bias),
                                .dst = dst.mutable_data(),
                                .activation = parse_activation(activation)};
    const py::gil_scoped_release without_gil;
    linear_forward(shape, tensors);
}

py::tuple backward(const Array& diff_dst, const Array& src, const Array& weights,
                   const std::optional<Array>& dst, const std::string& activation) {
    const LinearShape shape{.N = src.shape(0), .C = src.shape(1), .K = weights.shape(0)};
    require_shape("weights", weights, shape.K, shape.C);
    require_shape("diff_dst", diff_dst, shape.N, shape.K);
    if (dst) require_shape("dst", *dst, shape.N, shape.K);
    Array diff_src({shape.N, shape.C});
    Array diff_weights({shape.K, shape.C});
    Array diff_bias(shape.K);
    const LinearBackward tensors{.diff_dst = diff_dst.data(),
                                 .src = src.data(),
                                 .weights = weights.data(),
                                 .dst = data_or_null(dst),
                                 .activation = parse_activation(activation),
                                 .diff_src = diff_src.mutable_data(),
                                 .diff_weights = diff_weights.mutable_data(),
                                 .diff_bias = diff_bias.mutable_data()};
    {
        const py::gil_scoped_release without_gil;
        linear_backward(shape, tensors);
    }
    return py::make_tuple(diff_src, diff_weights, diff_bias);
}

}  // namespace

void register_linear(py::module_& module) {
    module.def("linear_forward", forward, py::arg("src").noconvert(),
               py::arg("weights").noconvert(), py::arg("bias").noconvert(), py::arg("activation"),
               py::arg("dst").noconvert());
    module.def("linear_backward", backward, py::arg("diff_dst").noconvert(),
               py::arg("src").noconvert(), py::arg("weights").noconvert(),
               py::arg("dst").noconvert(), py::arg("activation"));
}

}  // namespace dlprim::bindings
