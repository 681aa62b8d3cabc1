#include "bindings/conv2d_weights.h"

#include <numeric>

#include <pybind11/numpy.h>

namespace dlprim::bindings {
namespace {

constexpr std::int64_t kCacheLine = 64;

std::int64_t elements_of(const Shape& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

std::int64_t PyConv2d::direct_weights_bytes() const {
    const std::int64_t bytes = elements_of(direct_weights_shape_) * size_of(dtype());
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

void PyConv2d::find_weights_shapes() {
    const std::int64_t element = size_of(dtype());
    std::int64_t bytes = direct_weights_bytes();
    // Empty cache lines at the end, as many as tell which tiles the weights are transformed for, so
    // that those of another choice are refused.
    const auto mark = [&](PassKind pass, std::int64_t weight) {
        const std::string name = conv_.algorithm(pass);
        return kCacheLine * weight * (name == "winograd4" ? 1 : name == "winograd2" ? 2 : 0);
    };
    forward_weights_shape_ = direct_weights_shape_;
    if (conv_.transformed_floats(PassKind::forward) > 0) {
        bytes += conv_.transformed_floats(PassKind::forward) * size_of(DType::f32);
        forward_weights_shape_ = {(bytes + mark(PassKind::forward, 1)) / element};
    }
    weights_shape_ = forward_weights_shape_;
    if (conv_.transformed_floats(PassKind::backward_data) > 0) {
        bytes += conv_.transformed_floats(PassKind::backward_data) * size_of(DType::f32);
    }
    if (weights_shape_ != direct_weights_shape_ ||
        conv_.transformed_floats(PassKind::backward_data) > 0) {
        const std::int64_t marks = mark(PassKind::forward, 1) + mark(PassKind::backward_data, 3);
        weights_shape_ = {(bytes + marks) / element};
    }
}

PyConv2d::Weights PyConv2d::weights_in(const char* name, py::handle array) const {
    const Shape* shape = &weights_shape_;
    if (py::isinstance<py::array>(array)) {
        const auto given = py::reinterpret_borrow<py::array>(array);
        const auto has = [&](const Shape& wanted) {
            return given.ndim() == static_cast<py::ssize_t>(wanted.size()) &&
                   std::equal(wanted.begin(), wanted.end(), given.shape());
        };
        if (has(direct_weights_shape_)) {
            shape = &direct_weights_shape_;
        } else if (has(forward_weights_shape_)) {
            shape = &forward_weights_shape_;
        }
    }
    Weights weights{.array = Operand(name, array, dtype(), *shape)};
    if (*shape == direct_weights_shape_) return weights;
    const auto* next =
        reinterpret_cast<const float*>(weights.array->data() + direct_weights_bytes());
    if (conv_.transformed_floats(PassKind::forward) > 0) {
        weights.forward = next;
        next += conv_.transformed_floats(PassKind::forward);
    }
    if (conv_.transformed_floats(PassKind::backward_data) > 0 && *shape == weights_shape_) {
        weights.backward = next;
    }
    return weights;
}

void PyConv2d::pack_weights(py::handle w, py::handle out) const {
    // Master weights are float32 whatever the passes multiply.
    const DType from = py::isinstance<py::array_t<float>>(w) ? DType::f32 : dtype();
    const Maybe plain_weights = Operand("w", w, from, plain_weights_shape());
    const Weights packed = weights_in("out", out);
    char* const result = packed.array->writeable({&plain_weights});
    const py::gil_scoped_release without_gil;
    dlprim::pack_weights(conv_.spec().shape, from, dtype(), plain_weights->data(), result);
    if (packed.forward != nullptr) {
        conv_.transform_weights(PassKind::forward, result, const_cast<float*>(packed.forward));
    }
    if (packed.backward != nullptr) {
        conv_.transform_weights(PassKind::backward_data, result,
                                const_cast<float*>(packed.backward));
    }
}

}  // namespace dlprim::bindings
