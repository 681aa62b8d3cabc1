#include "primitives/linear/plain_linear.h"

#include <algorithm>

#include "primitives/linear/narrow_product.h"

namespace dlprim {
namespace {

// Vectors of the narrow product at most: with more, the kernel does more per load.
constexpr std::int64_t kFewVectors = 7;
// Samples up to which weights are read once by the swapped product rather than packed.
constexpr std::int64_t kFewSamples = 192;
// Samples whose sums are held at once in registers, so that no row of the weights is read twice.
constexpr std::int64_t kInPlaceSamples = 14;

PlainLinear::Way way_of(const LinearSpec& spec) {
    const LinearShape& shape = spec.shape;
    if (spec.dtype != DType::f32) return PlainLinear::Way::packed;
    if (std::min(shape.N, shape.K) <= kFewVectors) return PlainLinear::Way::narrow;
    const bool swaps = shape.N <= kFewSamples && shape.N < shape.K;
    return swaps ? PlainLinear::Way::swapped : PlainLinear::Way::packed;
}

LinearSpec plain(LinearSpec spec) {
    spec.layout = Format::nhwc;
    spec.dst_dtype = spec.dtype;
    return spec;
}

// Samples and output channels exchanged; what follows the product is not part of it.
LinearSpec swapped(const LinearSpec& spec) {
    LinearSpec made = spec;
    made.shape = {.N = spec.shape.K, .C = spec.shape.C, .K = spec.shape.N};
    made.activation = Activation::none;
    made.bias = false;
    return made;
}

// From the plain array to a form of the weights.
Reorder packing(const LinearSpec& spec, std::string_view name) {
    const auto forms = linear_forms(spec.shape, spec.dtype, spec.dtype, spec.layout);
    const TensorForm& form = form_of(forms, name);
    return {form.plain, form.packed};
}

Reorder transposition(const LinearShape& shape, DType dtype) {
    const Indices n{'n', shape.N}, k{'k', shape.K};
    return {stored_layout(dtype, {n, k}, {k, n}), plain_layout(dtype, {n, k})};
}

bool reads_weights_in_place(const LinearSpec& spec) {
    return spec.dtype == DType::f32 && spec.shape.N <= kInPlaceSamples;
}

LinearSpec with_plain_weights(LinearSpec spec) {
    spec.plain_weights = true;
    return spec;
}

}  // namespace

struct PlainLinear::Forward {
    Forward(const LinearSpec& spec, Way way)
        : layer(spec),
          product(way == Way::swapped ? swapped(spec) : spec),
          pack(packing(product.spec(), "weights")),
          packed_bytes(
              aligned(linear_weights_size(product.spec().shape, spec.dtype) * size_of(spec.dtype))),
          transpose(transposition(spec.shape, spec.dtype)) {}

    Linear layer;
    Linear product;  // the layer itself, or swapped
    Reorder pack;
    std::int64_t packed_bytes;
    Reorder transpose;
};

struct PlainLinear::Backward {
    explicit Backward(const LinearSpec& spec)
        : in_place(with_plain_weights(spec)),
          data(reads_weights_in_place(spec) ? with_plain_weights(spec) : spec),
          pack(packing(spec, "backward_weights")),
          packed_bytes(reads_weights_in_place(spec)
                           ? 0
                           : aligned(linear_weights_size(spec.shape, spec.dtype) *
                                     size_of(spec.dtype))),
          gradient_bytes(spec.activation == Activation::none
                             ? 0
                             : aligned(spec.shape.N * spec.shape.K * size_of(spec.dtype))) {}

    Linear in_place;
    Linear data;
    Reorder pack;
    std::int64_t packed_bytes;    // of weights, where they are packed
    std::int64_t gradient_bytes;  // in front of the activation
};

PlainLinear::PlainLinear(const LinearSpec& spec) : spec_(plain(spec)), way_(way_of(spec_)) {}

const PlainLinear::Forward& PlainLinear::forward_passes() const {
    std::call_once(forward_made_,
                   [&] { forward_ = std::make_shared<const Forward>(spec_, way_); });
    return *forward_;
}

const PlainLinear::Backward& PlainLinear::backward_passes() const {
    std::call_once(backward_made_,
                   [&] { backward_ = std::make_shared<const Backward>(spec_); });
    return *backward_;
}

void PlainLinear::forward(const LinearForward& tensors) const {
    switch (way_) {
        case Way::narrow: return run_narrow(tensors);
        case Way::swapped: return run_swapped(tensors);
        case Way::packed: return run_packed(tensors);
    }
}

// The fewer of samples and output channels are the vectors.
void PlainLinear::run_narrow(const LinearForward& it) const {
    const LinearShape& shape = spec_.shape;
    const bool activates = spec_.activation != Activation::none;
    NarrowProduct product{.dtype = spec_.dtype,
                          .columns = shape.C,
                          .block = std::max<std::int64_t>(shape.C, 1),
                          .row_step = shape.C,
                          .vector_step = shape.C,
                          .bias = activates ? nullptr : it.bias,
                          .out = it.dst};
    if (shape.N < shape.K) {
        product.rows = shape.K;
        product.matrix = it.weights;
        product.vectors = static_cast<const float*>(it.src);
        product.vector_count = shape.N;
        product.bias_row_step = 1;
        product.out_row_step = 1;
        product.out_vector_step = shape.K;
    } else {
        product.rows = shape.N;
        product.matrix = it.src;
        product.vectors = static_cast<const float*>(it.weights);
        product.vector_count = shape.K;
        product.bias_vector_step = 1;
        product.out_row_step = shape.K;
        product.out_vector_step = 1;
    }
    narrow_product(product);
    if (activates) forward_passes().layer.finish(it.bias, it.dst);
}

void PlainLinear::run_swapped(const LinearForward& it) const {
    const Forward& passes = forward_passes();
    const std::int64_t sums = aligned(spec_.shape.N * spec_.shape.K * size_of(spec_.dtype));
    const WorkspacePool::Lease scratch(*workspaces_, passes.packed_bytes + sums);
    char* const transposed = scratch.data() + passes.packed_bytes;
    passes.pack.run(it.src, scratch.data());
    passes.product.forward({.src = it.weights, .weights = scratch.data(), .dst = transposed});
    passes.transpose.run(transposed, it.dst);
    if (spec_.bias || spec_.activation != Activation::none) passes.layer.finish(it.bias, it.dst);
}

void PlainLinear::run_packed(const LinearForward& it) const {
    const Forward& passes = forward_passes();
    const WorkspacePool::Lease packed(*workspaces_, passes.packed_bytes);
    passes.pack.run(it.weights, packed.data());
    LinearForward tensors = it;
    tensors.weights = packed.data();
    passes.product.forward(tensors);
}

void PlainLinear::backward(const PlainLinearGradients& it) const {
    const Backward& passes = backward_passes();
    const WorkspacePool::Lease scratch(*workspaces_, passes.gradient_bytes + passes.packed_bytes);
    const bool activates = spec_.activation != Activation::none;
    void* const passed = activates ? scratch.data() : nullptr;
    passes.in_place.backward_activation({.diff_dst = it.diff_dst,
                                         .saved = it.saved,
                                         .out = passed,
                                         .diff_bias = it.diff_bias});
    const void* const diff = activates ? passed : it.diff_dst;
    const void* weights = it.weights;
    if (passes.packed_bytes > 0) {
        char* const packed = scratch.data() + passes.gradient_bytes;
        passes.pack.run(it.weights, packed);
        weights = packed;
    }
    passes.data.backward_data(diff, weights, it.diff_src);
    passes.in_place.backward_weights(it.src, diff, spec_.dtype, it.diff_weights);
}

std::string_view name_of(PlainLinear::Way way) {
    switch (way) {
        case PlainLinear::Way::narrow: return "narrow";
        case PlainLinear::Way::swapped: return "swapped";
        case PlainLinear::Way::packed: return "packed";
    }
    return "packed";
}

}  // namespace dlprim
