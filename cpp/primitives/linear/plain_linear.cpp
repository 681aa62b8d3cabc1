#include "primitives/linear/plain_linear.h"

#include <algorithm>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Vectors of the narrow product at most: with more, the kernel does more per load.
constexpr std::int64_t kFewVectors = 7;
// Samples up to which weights are read once by the swapped product rather than packed.
constexpr std::int64_t kFewSamples = 192;
// Samples up to which the backward-data pass reads float32 weights in place.
constexpr std::int64_t kInPlaceSamples = 192;
// Channels from which on more than a few samples earn packed activations.
constexpr std::int64_t kPackedChannels = 256;

PlainLinear::Way way_of(const LinearSpec& spec, bool fortran_weights) {
    const LinearShape& shape = spec.shape;
    if (fortran_weights) return PlainLinear::Way::rows;
    if (spec.dtype != DType::f32) return PlainLinear::Way::packed;
    if (std::min(shape.N, shape.K) <= kFewVectors) return PlainLinear::Way::narrow;
    const bool swaps = shape.N <= kFewSamples && shape.N < shape.K;
    return swaps ? PlainLinear::Way::swapped : PlainLinear::Way::packed;
}

LinearSpec plain(LinearSpec spec) {
    spec.layout = Format::nhwc;
    spec.dst_dtype = spec.dtype;
    spec.plain_results = true;
    return spec;
}

LinearSpec with_packed_activations(LinearSpec spec) {
    spec.layout = Format::blocked;
    return spec;
}

// Of all operands.
double bytes_of(const LinearSpec& spec) {
    const LinearShape& shape = spec.shape;
    const std::int64_t elements = shape.N * shape.C + shape.C * shape.K + shape.N * shape.K;
    return static_cast<double>(elements * size_of(spec.dtype));
}

bool packs_gradients(const LinearSpec& spec) {
    return spec.dtype == DType::f32 && spec.shape.N > LinearProblem::kStreamingSamples &&
           std::min(spec.shape.C, spec.shape.K) >= kPackedChannels;
}

// Input and output channels exchanged: the one's backward-data pass is the other's product.
LinearSpec reversed(const LinearSpec& spec) {
    LinearSpec made = spec;
    made.shape = {.N = spec.shape.N, .C = spec.shape.K, .K = spec.shape.C};
    made.activation = Activation::none;
    made.bias = false;
    return made;
}

// Samples and output channels exchanged; what follows the product is not part of it.
LinearSpec swapped(const LinearSpec& spec) {
    LinearSpec made = spec;
    made.shape = {.N = spec.shape.K, .C = spec.shape.C, .K = spec.shape.N};
    made.activation = Activation::none;
    made.bias = false;
    return made;
}

// From a plain array to the form that a pass reads.
struct Packing {
    Packing(const LinearSpec& spec, std::string_view name, bool is_needed)
        : Packing(form_of(linear_forms(spec.shape, spec.dtype, spec.dtype, spec.layout), name),
                  is_needed) {}

    // What was packed, or the array itself.
    const void* run(const void* plain, char* scratch) const {
        if (bytes == 0) return plain;
        reorder.run(plain, scratch);
        return scratch;
    }

    Reorder reorder;
    std::int64_t bytes;  // of scratch, 0 where the array is read in place

private:
    Packing(const TensorForm& form, bool is_needed)
        : reorder(form.plain, form.packed), bytes(is_needed ? aligned(form.packed.bytes()) : 0) {}
};

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

// As the backward-data pass reads its operands.
LinearSpec backward_spec(const LinearSpec& spec) {
    const LinearSpec packed = packs_gradients(spec) ? with_packed_activations(spec) : spec;
    return reads_weights_in_place(spec) ? with_plain_weights(packed) : packed;
}

// What the product of the forward pass is.
LinearSpec product_of(const LinearSpec& spec, PlainLinear::Way way) {
    if (way == PlainLinear::Way::rows) return backward_spec(reversed(spec));
    return way == PlainLinear::Way::swapped ? swapped(spec) : spec;
}

// The fewer of samples and output channels are the vectors.
NarrowShape plain_narrow_shape(const LinearSpec& spec) {
    const LinearShape& shape = spec.shape;
    NarrowShape made{.dtype = spec.dtype,
                     .columns = shape.C,
                     .block = shape.C,
                     .row_step = shape.C,
                     .block_step = shape.C,
                     .vector_step = shape.C,
                     .bias = spec.bias && spec.activation == Activation::none};
    if (shape.N < shape.K) {
        made.rows = shape.K;
        made.vector_count = shape.N;
        made.bias_row_step = 1;
        made.out_row_step = 1;
        made.out_vector_step = shape.K;
    } else {
        made.rows = shape.N;
        made.vector_count = shape.K;
        made.bias_vector_step = 1;
        made.out_row_step = shape.K;
        made.out_vector_step = 1;
    }
    return made;
}

}  // namespace

struct PlainLinear::Forward {
    Forward(const LinearSpec& spec, Way way)
        : layer(spec),
          product(product_of(spec, way)),
          src(product.spec(), way == Way::rows ? "diff_dst" : "src",
              product.spec().layout == Format::blocked),
          matrix(product.spec(), way == Way::rows ? "backward_weights" : "weights",
                 !product.spec().plain_weights),
          transpose(transposition(spec.shape, spec.dtype)) {}

    Linear layer;
    Linear product;  // as the layer, or swapped, or reversed
    Packing src;
    Packing matrix;  // that is packed: the weights, or swapped src
    Reorder transpose;
};

struct PlainLinear::Backward {
    Backward(const LinearSpec& spec, bool fortran_weights)
        : layer(spec),
          passes(backward_spec(spec)),
          src(passes.spec(), "src", passes.spec().layout == Format::blocked),
          diff_dst(passes.spec(), "diff_dst", passes.spec().layout == Format::blocked),
          matrix(spec, "backward_weights", !passes.spec().plain_weights && !fortran_weights),
          gradient_bytes(spec.activation == Activation::none
                             ? 0
                             : aligned(spec.shape.N * spec.shape.K * size_of(spec.dtype))),
          reverse(fortran_weights ? std::make_unique<PlainLinear>(reversed(spec)) : nullptr) {}

    Linear layer;
    Linear passes;
    Packing src;
    Packing diff_dst;
    Packing matrix;
    std::int64_t gradient_bytes;           // in front of the activation
    std::unique_ptr<PlainLinear> reverse;  // whose weights are those of this one in C's order
};

PlainLinear::PlainLinear(const LinearSpec& spec, bool fortran_weights)
    : spec_(plain(spec)), fortran_weights_(fortran_weights), way_(way_of(spec_, fortran_weights)) {}

const PlainLinear::Forward& PlainLinear::forward_passes() const {
    std::call_once(forward_made_, [&] { forward_ = std::make_shared<const Forward>(spec_, way_); });
    return *forward_;
}

const PlainLinear::Backward& PlainLinear::backward_passes() const {
    std::call_once(backward_made_,
                   [&] { backward_ = std::make_shared<const Backward>(spec_, fortran_weights_); });
    return *backward_;
}

void PlainLinear::forward(const LinearForward& tensors) const {
    const WorkOf work(spec_.shape.flops(), bytes_of(spec_));
    switch (way_) {
        case Way::narrow: return run_narrow(tensors);
        case Way::swapped: return run_swapped(tensors);
        case Way::packed: return run_packed(tensors);
        case Way::rows: return run_rows(tensors);
    }
}

void PlainLinear::run_narrow(const LinearForward& it) const {
    if (spec_.shape.N * spec_.shape.K == 0) return;
    std::call_once(narrow_made_, [&] { narrow_.emplace(plain_narrow_shape(spec_)); });
    const bool swaps = spec_.shape.N < spec_.shape.K;
    narrow_->run({swaps ? it.weights : it.src,
                  static_cast<const float*>(swaps ? it.src : it.weights), it.bias, it.dst});
    if (spec_.activation != Activation::none) forward_passes().layer.finish(it.bias, it.dst);
}

void PlainLinear::run_swapped(const LinearForward& it) const {
    const Forward& passes = forward_passes();
    const std::int64_t sums = aligned(spec_.shape.N * spec_.shape.K * size_of(spec_.dtype));
    const WorkspacePool::Lease scratch(*workspaces_, passes.matrix.bytes + sums);
    char* const transposed = scratch.data() + passes.matrix.bytes;
    passes.product.forward({.src = it.weights,
                            .weights = passes.matrix.run(it.src, scratch.data()),
                            .dst = transposed});
    passes.transpose.run(transposed, it.dst);
    if (spec_.bias || spec_.activation != Activation::none) passes.layer.finish(it.bias, it.dst);
}

void PlainLinear::run_packed(const LinearForward& it) const {
    const Forward& passes = forward_passes();
    const WorkspacePool::Lease scratch(*workspaces_, passes.matrix.bytes);
    LinearForward tensors = it;
    tensors.weights = passes.matrix.run(it.weights, scratch.data());
    passes.product.forward(tensors);
}

void PlainLinear::run_rows(const LinearForward& it) const {
    const Forward& has = forward_passes();
    const WorkspacePool::Lease scratch(*workspaces_, has.src.bytes + has.matrix.bytes);
    has.product.backward_data(has.src.run(it.src, scratch.data()),
                              has.matrix.run(it.weights, scratch.data() + has.src.bytes), it.dst);
    if (spec_.bias || spec_.activation != Activation::none) has.layer.finish(it.bias, it.dst);
}

void PlainLinear::backward(const PlainLinearGradients& it) const {
    const WorkOf work(2 * spec_.shape.flops(), 2 * bytes_of(spec_));
    const Backward& has = backward_passes();
    const bool activates = spec_.activation != Activation::none;
    const WorkspacePool::Lease scratch(
        *workspaces_, has.gradient_bytes + has.src.bytes + has.diff_dst.bytes + has.matrix.bytes);
    ScratchCutter cutter(scratch.data());
    char* const passed = cutter.take(has.gradient_bytes);
    has.layer.backward_activation({.diff_dst = it.diff_dst,
                                   .saved = it.saved,
                                   .out = activates ? passed : nullptr,
                                   .diff_bias = it.diff_bias});
    const void* const plain = activates ? passed : it.diff_dst;
    const void* const diff = has.diff_dst.run(plain, cutter.take(has.diff_dst.bytes));
    const void* const src = has.src.run(it.src, cutter.take(has.src.bytes));
    if (has.reverse != nullptr) {
        has.reverse->forward({.src = plain, .weights = it.weights, .dst = it.diff_src});
    } else {
        const void* const weights = has.matrix.run(it.weights, cutter.take(has.matrix.bytes));
        has.passes.backward_data(diff, weights, it.diff_src);
    }
    has.passes.backward_weights(src, diff, spec_.dtype, it.diff_weights);
}

std::string_view name_of(PlainLinear::Way way) {
    switch (way) {
        case PlainLinear::Way::narrow: return "narrow";
        case PlainLinear::Way::swapped: return "swapped";
        case PlainLinear::Way::packed: return "packed";
        case PlainLinear::Way::rows: return "rows";
    }
    return "packed";
}

}  // namespace dlprim
