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

// An array that can be used as it is: contiguous in an order, aligned, of float32 or bfloat16.
class PlainArray {
public:
    // Nothing for anything else.
    static std::optional<PlainArray> of(py::handle object, int order = py::array::c_style) {
        if (!py::isinstance<py::array>(object)) return {};
        const int needed = order | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
        const auto array = py::reinterpret_borrow<py::array>(object);
        if ((array.flags() & needed) != needed) return {};
        const std::optional<DType> dtype = float_type_of(array);
        if (!dtype) return {};
        return PlainArray(array, *dtype);
    }
    // An operand that is read, of no subclass, whose values may mean more; of a small one with gaps
    // a copy.
    static std::optional<PlainArray> read(py::handle object) {
        if (Py_TYPE(object.ptr()) != py::detail::npy_api::get().PyArray_Type_) return {};
        std::optional<PlainArray> array = of(object);
        if (array) return array;
        const auto spaced = py::reinterpret_borrow<py::array>(object);
        if (spaced.nbytes() > kSmallCopy || !float_type_of(spaced)) return {};
        const auto copy = py::array::ensure(spaced, py::array::c_style);
        return copy ? of(copy) : std::nullopt;
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
    const char* data() const { return static_cast<const char*>(array_.data()); }
    // Of uint16: bits of bfloat16 values only where the caller has said so.
    bool may_be_numbers() const {
        return dtype_ == DType::bf16 && py::isinstance<py::array_t<std::uint16_t>>(array_);
    }
    bool overlaps(const PlainArray& other) const {
        return array_.nbytes() > 0 && other.array_.nbytes() > 0 &&
               data() < other.data() + other.array_.nbytes() &&
               other.data() < data() + array_.nbytes();
    }

private:
    PlainArray(py::array array, DType dtype) : array_(std::move(array)), dtype_(dtype) {}

    py::array array_;
    DType dtype_;
};

struct LayerKey {
    LinearShape shape;
    DType dtype;
    Activation activation;
    bool bias;
    bool fortran_weights;

    auto values() const {
        return std::tuple(shape.N, shape.C, shape.K, dtype, activation, bias, fortran_weights);
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
        const LinearSpec spec{
            .shape = key.shape, .dtype = key.dtype, .activation = key.activation, .bias = key.bias};
        kept->push_front({key, std::make_shared<const PlainLinear>(spec, key.fortran_weights)});
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
    bool fortran_weights;

    bool may_be_numbers() const { return x.may_be_numbers() || w.may_be_numbers(); }
    LinearShape shape() const { return {.N = x.rows(), .C = w.extent(1), .K = w.extent(0)}; }
};

std::optional<Operands> operands_of(py::handle x, py::handle w) {
    if (!PlainArray::is_ndarray(w)) return {};
    const auto src = PlainArray::read(x);
    auto weights = PlainArray::of(w);
    const bool fortran = !weights;
    if (fortran) weights = PlainArray::of(w, py::array::f_style);
    if (!src || !weights || src->dtype() != weights->dtype()) return {};
    if (weights->dimensions() != 2 || src->dimensions() == 0) return {};
    if (src->last() != weights->extent(1)) return {};
    if (std::max(weights->extent(0), weights->extent(1)) > kMostLinearChannels) return {};
    return Operands{*src, *weights, fortran};
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
    if (!out.is_none() && it->x.array().ptr() != x.ptr()) return py::none();
    if (!bias.is_none() && !PlainArray::is_ndarray(bias)) return py::none();
    const LinearShape shape = it->shape();
    const auto offset = PlainArray::of(bias);
    if (!bias.is_none() && (!offset || offset->dtype() != DType::f32 || offset->dimensions() != 1 ||
                            offset->last() != shape.K)) {
        return py::none();
    }
    const Activation applied = activation_named(activation);
    // A bfloat16 sum must not be rounded before what follows it.
    const bool follows = offset.has_value() || applied != Activation::none;
    if (it->fortran_weights && it->x.dtype() == DType::bf16 && follows) return py::none();
    const auto layer =
        layer_of({shape, it->x.dtype(), applied, offset.has_value(), it->fortran_weights});
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
    const auto layer = layer_of({shape, it->x.dtype(), applied, false, it->fortran_weights});
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
