// linear and linear_backward on plain arrays, in one step from the interpreter to the loops: arrays
// that are as they should be, which is what nearly every call brings, are recognised here in a few
// comparisons. For all others the result is None, and the caller in Python converts what can be
// converted and says what is wrong with the rest.
#include "primitives/linear/plain_linear.h"

#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/arrays/call.h"
#include "bindings/register.h"
#include "jit/activation.h"

namespace dlprim::bindings {
namespace {

// Shapes whose layers are kept; a network has fewer.
constexpr std::size_t kMostLayers = 128;
// Bytes of an array that is copied here rather than by the caller, whose checks take longer.
constexpr py::ssize_t kSmallCopy = 1 << 16;

// An array that can be used as it is: aligned, of float32 or bfloat16.
class PlainArray {
public:
    // In C's order. Nothing for anything else.
    static std::optional<PlainArray> of(py::handle object) {
        if (!py::isinstance<py::array>(object)) return {};
        const int needed = py::array::c_style | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
        return with_flags(py::reinterpret_borrow<py::array>(object), needed);
    }
    // An operand that is read, of no subclass, whose values may mean more; of a small one with gaps
    // a copy.
    static std::optional<PlainArray> read(py::handle object) {
        if (!is_ndarray(object)) return {};
        std::optional<PlainArray> array = of(object);
        if (array) return array;
        const auto spaced = py::reinterpret_borrow<py::array>(object);
        if (spaced.nbytes() > kSmallCopy || !float_type_of(spaced)) return {};
        const auto copy = py::array::ensure(spaced, py::array::c_style);
        return copy ? of(copy) : std::nullopt;
    }
    // The same of a matrix, whose rows and columns may lie anyhow.
    static std::optional<PlainArray> read_matrix(py::handle object) {
        if (!is_ndarray(object)) return {};
        const int needed = py::detail::npy_api::NPY_ARRAY_ALIGNED_;
        std::optional<PlainArray> array =
            with_flags(py::reinterpret_borrow<py::array>(object), needed);
        return array && array->strides() ? array : read(object);
    }

    static bool is_ndarray(py::handle object) {
        return Py_TYPE(object.ptr()) == py::detail::npy_api::get().PyArray_Type_;
    }

    DType dtype() const { return dtype_; }
    const py::array& array() const { return array_; }
    int dimensions() const { return static_cast<int>(array_.ndim()); }
    std::int64_t extent(int axis) const { return array_.shape(axis); }
    std::int64_t last() const { return extent(dimensions() - 1); }
    // Of all axes but the last.
    std::int64_t rows() const {
        std::int64_t count = 1;
        for (int axis = 0; axis + 1 < dimensions(); ++axis) count *= extent(axis);
        return count;
    }
    // From row to row, all axes but the last seen as one, and from column to column. Nothing where
    // there is no such distance, or none.
    std::optional<MatrixStrides> strides() const {
        if (dimensions() == 0) return {};
        const std::int64_t element = size_of(dtype_);
        MatrixStrides made = dense_rows(last());
        if ((array_.flags() & py::array::c_style) != 0) return made;
        std::int64_t rows = 1, row = 0;  // bytes
        for (int axis = dimensions() - 1; axis-- > 0;) {
            if (extent(axis) == 1) continue;
            if (rows > 1 && array_.strides(axis) != rows * row) return {};
            if (rows == 1) row = array_.strides(axis);
            rows *= extent(axis);
        }
        const std::int64_t column = last() > 1 ? array_.strides(dimensions() - 1) : element;
        if (rows > 1) made.row = row / element;
        made.column = column / element;
        const bool moves = (row != 0 || rows <= 1) && column != 0;
        if (!moves || row % element != 0 || column % element != 0) return {};
        return made;
    }
    const char* data() const { return static_cast<const char*>(array_.data()); }
    // Of uint16: bits of bfloat16 values only where the caller has said so.
    bool may_be_numbers() const {
        return dtype_ == DType::bf16 && py::isinstance<py::array_t<std::uint16_t>>(array_);
    }
    // That there is one byte between the first and the last one of either.
    bool overlaps(const PlainArray& other) const {
        const auto [first, end] = span();
        const auto [other_first, other_end] = other.span();
        return first < end && other_first < other_end && first < other_end && other_first < end;
    }

private:
    PlainArray(py::array array, DType dtype) : array_(std::move(array)), dtype_(dtype) {}

    static std::optional<PlainArray> with_flags(const py::array& array, int needed) {
        if ((array.flags() & needed) != needed) return {};
        const std::optional<DType> dtype = float_type_of(array);
        if (!dtype) return {};
        return PlainArray(array, *dtype);
    }

    // The first byte, and one behind the last.
    std::pair<const char*, const char*> span() const {
        std::pair made(data(), data());
        if (array_.nbytes() == 0) return made;
        made.second += size_of(dtype_);
        for (int axis = 0; axis < dimensions(); ++axis) {
            const py::ssize_t farthest = (extent(axis) - 1) * array_.strides(axis);
            (farthest < 0 ? made.first : made.second) += farthest;
        }
        return made;
    }

    py::array array_;
    DType dtype_;
};

struct LayerKey {
    LinearShape shape;
    DType dtype;
    Activation activation;
    bool bias;
    MatrixStrides x;
    MatrixStrides w;

    auto values() const {
        return std::tuple(shape.N, shape.C, shape.K, dtype, activation, bias, x, w);
    }
    friend bool operator==(const LayerKey& one, const LayerKey& other) {
        return one.values() == other.values();
    }
};

// The layers of the latest calls, guarded by the GIL: the last one that was used is the first.
std::shared_ptr<const PlainLinear> layer_of(const LayerKey& key) {
    struct Entry {
        LayerKey key;
        std::shared_ptr<const PlainLinear> layer;
    };
    static auto* const kept = new std::list<Entry>();  // outlives all threads
    const auto known = std::find_if(kept->begin(), kept->end(),
                                    [&](const Entry& entry) { return entry.key == key; });
    if (known != kept->end()) {
        kept->splice(kept->begin(), *kept, known);
    } else {
        const PlainLinearSpec spec{.shape = key.shape,
                                   .dtype = key.dtype,
                                   .activation = key.activation,
                                   .bias = key.bias,
                                   .src = key.x,
                                   .weights = key.w};
        kept->push_front({key, std::make_shared<const PlainLinear>(spec)});
        if (kept->size() > kMostLayers) kept->pop_back();
    }
    return kept->front().layer;
}

Activation activation_named(py::handle name) {
    return name.is_none() ? Activation::none : parse_activation(name.cast<std::string>());
}

Shape result_shape(const PlainArray& x, std::int64_t channels) {
    Shape shape(x.array().shape(), x.array().shape() + x.dimensions());
    shape.back() = channels;
    return shape;
}

struct Operands {
    PlainArray x;
    PlainArray w;
    MatrixStrides x_strides;
    MatrixStrides w_strides;

    bool may_be_numbers() const { return x.may_be_numbers() || w.may_be_numbers(); }
    LinearShape shape() const { return {.N = x.rows(), .C = w.extent(1), .K = w.extent(0)}; }
};

std::optional<Operands> operands_of(py::handle x, py::handle w) {
    const auto src = PlainArray::read_matrix(x), weights = PlainArray::read_matrix(w);
    if (!src || !weights || src->dtype() != weights->dtype()) return {};
    if (weights->dimensions() != 2 || src->dimensions() == 0) return {};
    if (src->last() != weights->extent(1)) return {};
    if (std::max(weights->extent(0), weights->extent(1)) > kMostLinearChannels) return {};
    return Operands{*src, *weights, src->strides().value(), weights->strides().value()};
}

// Of the result's shape and the type of x.
bool is_like_result(const std::optional<PlainArray>& array, const Operands& it) {
    return array && array->dtype() == it.x.dtype() &&
           has_shape(array->array(), result_shape(it.x, it.shape().K));
}

// Null for arguments that are not as they should be.
py::object result_for(py::handle out, const Operands& it, const PlainArray* bias) {
    const LinearShape extents = it.shape();
    if (out.is_none()) {
        return new_array({it.x.dtype(), result_shape(it.x, extents.K)}, it.x.array().dtype());
    }
    if (is_masked(out)) return {};
    const auto given = PlainArray::of(out);
    if (!is_like_result(given, it) || !given->array().writeable()) return {};
    if (!given->array().dtype().equal(it.x.array().dtype())) return {};
    if (given->overlaps(it.x) || given->overlaps(it.w)) return {};
    if (bias != nullptr && given->overlaps(*bias)) return {};
    return py::reinterpret_borrow<py::object>(out);
}

py::object linear(py::handle x, py::handle w, py::handle bias, py::handle activation,
                  py::handle out, py::handle bits) {
    const auto it = operands_of(x, w);
    if (!it || (bits.ptr() != Py_True && it->may_be_numbers())) return py::none();
    // Whether `out` overlaps an array that was copied here, the caller has to say.
    const bool copied = it->x.array().ptr() != x.ptr() || it->w.array().ptr() != w.ptr();
    if (!out.is_none() && copied) return py::none();
    if (!bias.is_none() && !PlainArray::is_ndarray(bias)) return py::none();
    const LinearShape shape = it->shape();
    const auto offset = PlainArray::of(bias);
    if (!bias.is_none() && (!offset || offset->dtype() != DType::f32 || offset->dimensions() != 1 ||
                            offset->last() != shape.K)) {
        return py::none();
    }
    const auto layer = layer_of({shape, it->x.dtype(), activation_named(activation),
                                 offset.has_value(), it->x_strides, it->w_strides});
    const py::object made = result_for(out, *it, offset ? &*offset : nullptr);
    if (!made) return py::none();
    auto* const dst = py::reinterpret_borrow<py::array>(made).mutable_data();
    run_without_gil(shape.flops(), [&] {
        layer->forward({.src = it->x.data(),
                        .weights = it->w.data(),
                        .bias = offset ? reinterpret_cast<const float*>(offset->data()) : nullptr,
                        .dst = dst});
    });
    return made;
}

// (dx, dw, db), or None.
py::object linear_backward(py::handle dy, py::handle x, py::handle w, py::handle y,
                           py::handle activation, py::handle bits) {
    const auto it = operands_of(x, w);
    if (!it || (bits.ptr() != Py_True && it->may_be_numbers())) return py::none();
    const Activation applied = activation_named(activation);
    const auto gradient = PlainArray::read(dy);
    const auto saved = applied == Activation::none ? std::nullopt : PlainArray::read(y);
    if (!is_like_result(gradient, *it)) return py::none();
    if (applied != Activation::none && !is_like_result(saved, *it)) return py::none();
    if (bits.ptr() != Py_True &&
        (gradient->may_be_numbers() || (saved && saved->may_be_numbers()))) {
        return py::none();
    }
    const LinearShape shape = it->shape();
    const auto layer =
        layer_of({shape, it->x.dtype(), applied, false, it->x_strides, it->w_strides});
    const py::dtype dtype = it->x.array().dtype();
    const auto new_result = [](DType type, const Shape& extents, const py::dtype& as) {
        return py::reinterpret_borrow<py::array>(new_array({type, extents}, as));
    };
    py::array dx = new_result(it->x.dtype(), result_shape(it->x, shape.C), dtype);
    py::array dw = new_result(it->x.dtype(), {shape.K, shape.C}, dtype);
    py::array db = new_result(DType::f32, {shape.K}, py::dtype::of<float>());
    const PlainLinearGradients tensors{
        .diff_dst = gradient->data(),
        .src = it->x.data(),
        .weights = it->w.data(),
        .saved = applied == Activation::none ? nullptr : saved->data(),
        .diff_src = dx.mutable_data(),
        .diff_weights = dw.mutable_data(),
        .diff_bias = static_cast<float*>(db.mutable_data())};
    run_without_gil(shape.flops(), [&] { layer->backward(tensors); });
    return py::make_tuple(dx, dw, db);
}

}  // namespace

void register_plain_linear(py::module_& module) {
    module.def("linear", &linear, py::arg("x"), py::arg("w"), py::arg("bias"),
               py::arg("activation"), py::arg("out"), py::arg("bits"));
    module.def("linear_backward", &linear_backward, py::arg("dy"), py::arg("x"), py::arg("w"),
               py::arg("y"), py::arg("activation"), py::arg("bits"));
}

}  // namespace dlprim::bindings
