// attention on plain arrays, in one step from the interpreter to the loops: arrays that are as they
// should be are recognised here in a few comparisons. For all others the result is None, and the
// caller in Python converts what can be converted and says what is wrong with the rest.
#include "primitives/attention/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/arrays/call.h"
#include "bindings/register.h"
#include "primitives/attention/attention_backward.h"

namespace dlprim::bindings {
namespace {

// Shapes that are kept; a network has fewer.
constexpr std::size_t kMostShapes = 64;
constexpr int kAxes = 4;

// An array of four axes, the first of which may be missing where it is a mask, that is read or
// written where it is: aligned, the elements of its last axis next to each other.
class HeadsArray {
public:
    // Nothing for anything else.
    static std::optional<HeadsArray> of(py::handle object, bool is_mask = false) {
        const py::detail::npy_api& numpy = py::detail::npy_api::get();
        if (Py_TYPE(object.ptr()) != numpy.PyArray_Type_) return {};
        HeadsArray it(py::reinterpret_borrow<py::array>(object));
        if ((it.array_.flags() & numpy.NPY_ARRAY_ALIGNED_) == 0) return {};
        const auto type = is_mask && it.array_.dtype().kind() == 'b' ? std::optional(DType::u8)
                                                                     : float_type_of(it.array_);
        const auto axes = static_cast<int>(it.array_.ndim());
        if (!type || axes > kAxes || axes < (is_mask ? 1 : kAxes)) return {};
        it.dtype_ = *type;
        const std::int64_t size = size_of(*type);
        for (int axis = 0; axis < axes; ++axis) {
            const std::int64_t stride = it.array_.strides(axis);
            const bool moves = it.array_.shape(axis) > 1;
            if (moves && (stride < 0 || stride % size != 0)) return {};
        }
        const bool is_dense =
            it.array_.size() == 0 || it.extent(3) <= 1 || it.array_.strides(axes - 1) == size;
        return is_dense ? std::optional(it) : std::nullopt;
    }

    DType dtype() const { return dtype_; }
    const py::array& array() const { return array_; }
    // Of the axes batch, head, row and the last one; of what is missing 1.
    std::int64_t extent(int axis) const {
        const int own = axis - missing();
        return own < 0 ? 1 : array_.shape(own);
    }
    AttentionStrides strides() const { return {stride(0), stride(1), stride(2)}; }

    // As a mask of scores of these extents, whose axes may have one place for all but the last one.
    bool goes_with(const std::array<std::int64_t, kAxes>& scores) const {
        for (int axis = 0; axis < kAxes; ++axis) {
            const bool is_one = axis < kAxes - 1 && extent(axis) == 1;
            if (!is_one && extent(axis) != scores.at(static_cast<std::size_t>(axis))) return false;
        }
        return true;
    }
    // Of uint16: bits of bfloat16 values only where the caller has said so.
    bool may_be_numbers() const { return dtype_ == DType::bf16 && array_.dtype().kind() == 'u'; }
    bool overlaps(const HeadsArray& other) const {
        return array_.size() > 0 && other.array_.size() > 0 && begin() < other.end() &&
               other.begin() < end();
    }

private:
    explicit HeadsArray(py::array array) : array_(std::move(array)) {}

    int missing() const { return kAxes - static_cast<int>(array_.ndim()); }
    std::int64_t stride(int axis) const {
        return extent(axis) <= 1 ? 0 : array_.strides(axis - missing()) / size_of(dtype_);
    }
    const char* begin() const { return static_cast<const char*>(array_.data()); }
    const char* end() const {
        const char* last = begin() + size_of(dtype_);
        for (py::ssize_t axis = 0; axis < array_.ndim(); ++axis) {
            last += (array_.shape(axis) - 1) * array_.strides(axis);
        }
        return last;
    }

    py::array array_;
    DType dtype_ = DType::f32;
};

struct HeadsArrays {
    HeadsArray q;
    HeadsArray k;
    HeadsArray v;
    std::optional<HeadsArray> mask;

    bool may_be_numbers() const {
        return q.may_be_numbers() || k.may_be_numbers() || v.may_be_numbers() ||
               (mask && mask->may_be_numbers());
    }
    bool overlap(const HeadsArray& out) const {
        return out.overlaps(q) || out.overlaps(k) || out.overlaps(v) ||
               (mask && out.overlaps(*mask));
    }
    Shape result_shape() const { return {q.extent(0), q.extent(1), q.extent(2), v.extent(3)}; }
    bool has_result_shape(const HeadsArray& it) const {
        return it.dtype() == q.dtype() && has_shape(it.array(), result_shape());
    }

    // But for the result's strides.
    AttentionSpec spec() const {
        AttentionSpec made{.dtype = q.dtype(),
                           .batch = q.extent(0),
                           .heads = q.extent(1),
                           .kv_heads = k.extent(1),
                           .queries = q.extent(2),
                           .keys = k.extent(2),
                           .head_size = q.extent(3),
                           .value_size = v.extent(3),
                           .q = q.strides(),
                           .k = k.strides(),
                           .v = v.strides()};
        if (k.dtype() != q.dtype()) made.stored = k.dtype();
        if (mask) {
            made.mask_type = mask->dtype();
            made.mask = mask->strides();
        }
        return made;
    }
};

std::optional<HeadsArrays> arrays_of(py::handle q, py::handle k, py::handle v, py::handle mask) {
    const auto queries = HeadsArray::of(q), keys = HeadsArray::of(k), values = HeadsArray::of(v);
    if (!queries || !keys || !values) return {};
    const bool are_alike = queries->dtype() == keys->dtype() || queries->dtype() == DType::f32;
    if (!are_alike || keys->dtype() != values->dtype()) return {};
    for (int axis = 0; axis < kAxes - 1; ++axis) {
        if (keys->extent(axis) != values->extent(axis)) return {};
    }
    const std::int64_t heads = queries->extent(1), kv_heads = keys->extent(1);
    const bool fits = queries->extent(0) == keys->extent(0) && kv_heads > 0 &&
                      heads % kv_heads == 0 && queries->extent(3) == keys->extent(3) &&
                      keys->extent(3) > 0;
    const std::int64_t row = queries->strides().row;
    const bool are_apart =
        queries->extent(2) <= 1 || (row >= queries->extent(3) && row <= kMostAttentionElements);
    if (!fits || !are_apart) return {};
    HeadsArrays made{*queries, *keys, *values, {}};
    if (mask.is_none()) return made;
    made.mask = HeadsArray::of(mask, true);
    const bool goes = made.mask && made.mask->goes_with({queries->extent(0), heads,
                                                         queries->extent(2), keys->extent(2)});
    return goes ? std::optional(made) : std::nullopt;
}

// For the shapes of the latest calls, guarded by the GIL: the last one that was used is the first.
template <class Core, class Spec>
std::shared_ptr<const Core> core_for(const Spec& spec) {
    struct Entry {
        Spec spec;
        std::shared_ptr<const Core> core;
    };
    static auto* const kept = new std::list<Entry>();  // outlives all threads
    const auto known = std::find_if(kept->begin(), kept->end(),
                                    [&](const Entry& entry) { return entry.spec == spec; });
    if (known != kept->end()) {
        kept->splice(kept->begin(), *kept, known);
    } else {
        kept->push_front({spec, std::make_shared<const Core>(spec)});
        if (kept->size() > kMostShapes) kept->pop_back();
    }
    return kept->front().core;
}

// Scale, softcap, whether it is causal, keys in the past, whether uint16 arrays hold bits of
// bfloat16 values, and the window, 0 where there is none.
using Settings = std::tuple<std::optional<float>, float, bool, std::int64_t, bool, std::int64_t>;

bool holds_bits(const Settings& settings) { return std::get<4>(settings); }

AttentionSpec spec_of(const HeadsArrays& it, const HeadsArray& out, const Settings& settings) {
    const auto& [scale, softcap, causal, past, bits, window] = settings;
    AttentionSpec spec = it.spec();
    spec.out = out.strides();
    spec.scale = scale.value_or(1 / std::sqrt(static_cast<float>(spec.head_size)));
    spec.softcap = softcap;
    spec.causal = causal;
    spec.past = past;
    spec.window = window;
    return spec;
}

// How many of the places of a cache count: a number for all sequences, or an array with one for
// each. Nothing where it is anything else, or out of range.
std::optional<std::vector<std::int64_t>> fill_of(py::handle fill, std::int64_t batch,
                                                 std::int64_t capacity) {
    std::vector<std::int64_t> made;
    if (PyLong_CheckExact(fill.ptr())) {
        int overflow = 0;
        made.assign(static_cast<std::size_t>(batch),
                    PyLong_AsLongLongAndOverflow(fill.ptr(), &overflow));
        if (overflow != 0) return {};
    } else if (py::isinstance<py::array_t<std::int64_t>>(fill)) {
        const auto array = py::reinterpret_borrow<py::array_t<std::int64_t>>(fill);
        if (array.ndim() != 1 || array.shape(0) != batch) return {};
        for (py::ssize_t i = 0; i < batch; ++i) made.push_back(array.at(i));
    } else {
        return {};
    }
    const auto fits = [&](std::int64_t it) { return it >= 0 && it <= capacity; };
    if (!std::all_of(made.begin(), made.end(), fits)) return {};
    return made;
}

py::object attention(py::handle q, py::handle k, py::handle v, py::handle mask, py::handle out,
                     py::handle fill, const Settings& settings) {
    const auto it = arrays_of(q, k, v, mask);
    if (!it || (!holds_bits(settings) && it->may_be_numbers())) return py::none();
    std::optional<std::vector<std::int64_t>> filled;
    if (!fill.is_none()) {
        filled = fill_of(fill, it->q.extent(0), it->k.extent(2));
        if (!filled) return py::none();
    }
    const py::object result =
        out.is_none() ? new_array({it->q.dtype(), it->result_shape()}, it->q.array().dtype())
                      : py::reinterpret_borrow<py::object>(out);
    const auto made = HeadsArray::of(result);
    const bool fits = made && it->has_result_shape(*made) && made->array().writeable() &&
                      made->array().dtype().equal(it->q.array().dtype()) && !it->overlap(*made);
    if (!fits) return py::none();
    AttentionSpec spec = spec_of(*it, *made, settings);
    spec.is_filled = filled.has_value();
    const auto core = core_for<Attention>(spec);
    const AttentionArrays arrays{.q = it->q.array().data(),
                                 .k = it->k.array().data(),
                                 .v = it->v.array().data(),
                                 .mask = it->mask ? it->mask->array().data() : nullptr,
                                 .out = py::reinterpret_borrow<py::array>(result).mutable_data(),
                                 .fill = filled ? filled->data() : nullptr};
    run_without_gil(spec.flops(), [&] { core->forward(arrays); });
    return result;
}

// A gradient in the type of an array, and in C order.
py::array gradient_by(const HeadsArray& it) {
    const Shape shape = {it.extent(0), it.extent(1), it.extent(2), it.extent(3)};
    return new_array({it.dtype(), shape}, it.array().dtype());
}

py::object attention_backward(py::handle dy, py::handle q, py::handle k, py::handle v,
                              py::handle mask, const Settings& settings) {
    const auto it = arrays_of(q, k, v, mask);
    const auto diff = HeadsArray::of(dy);
    if (!it || !diff || !it->has_result_shape(*diff)) return py::none();
    if (it->k.dtype() != it->q.dtype()) return py::none();
    const bool may_be_numbers = it->may_be_numbers() || diff->may_be_numbers();
    const std::int64_t row = diff->strides().row;
    const bool are_apart =
        diff->extent(2) <= 1 || (row >= diff->extent(3) && row <= kMostAttentionElements);
    if ((!holds_bits(settings) && may_be_numbers) || !are_apart) return py::none();
    py::array dq = gradient_by(it->q), dk = gradient_by(it->k), dv = gradient_by(it->v);
    const AttentionBackwardSpec spec{.forward = spec_of(*it, *diff, settings),
                                     .diff_q = HeadsArray::of(dq)->strides(),
                                     .diff_k = HeadsArray::of(dk)->strides(),
                                     .diff_v = HeadsArray::of(dv)->strides()};
    const auto core = core_for<AttentionBackward>(spec);
    const AttentionBackwardArrays arrays{.q = it->q.array().data(),
                                         .k = it->k.array().data(),
                                         .v = it->v.array().data(),
                                         .mask = it->mask ? it->mask->array().data() : nullptr,
                                         .diff_out = diff->array().data(),
                                         .diff_q = dq.mutable_data(),
                                         .diff_k = dk.mutable_data(),
                                         .diff_v = dv.mutable_data()};
    run_without_gil(spec.flops(), [&] { core->run(arrays); });
    return py::make_tuple(dq, dk, dv);
}

}  // namespace

void register_attention(py::module_& module) {
    module.def("attention", &attention, py::arg("q"), py::arg("k"), py::arg("v"), py::arg("mask"),
               py::arg("out"), py::arg("fill"), py::arg("settings"));
    module.def("attention_backward", &attention_backward, py::arg("dy"), py::arg("q"), py::arg("k"),
               py::arg("v"), py::arg("mask"), py::arg("settings"));
}

}  // namespace dlprim::bindings
