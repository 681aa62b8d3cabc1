#include "primitives/conv/conv2d.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Of the weights with the roles of the channels exchanged, on cache lines.
std::int64_t packed_transposed_bytes(const ConvSpec& spec) {
    return aligned(transposed_weights_size(spec.shape, spec.dtype) * size_of(spec.dtype));
}

}  // namespace

void Conv2d::forward_winograd(const ConvForward& tensors, bool relu) const {
    const auto pass = winograd_.pass(PassKind::forward);
    const int threads = num_threads();
    const bool transforms = tensors.transformed == nullptr;
    const WorkspacePool::Lease scratch(*workspaces_, pass->scratch_bytes(transforms, threads));
    pass->run({.src = tensors.src,
               .transformed = tensors.transformed,
               .weights = tensors.weights,
               .bias = tensors.bias,
               .residual = tensors.residual,
               .relu = relu,
               .dst = tensors.dst},
              scratch.data(), threads);
}

void Conv2d::backward_data_winograd(const void* diff_dst, const void* weights, void* diff_src,
                                    const float* transformed) const {
    const auto pass = winograd_.pass(PassKind::backward_data);
    const int threads = num_threads();
    const bool transforms = transformed == nullptr;
    const std::int64_t transposed = transforms ? packed_transposed_bytes(spec_) : 0;
    const WorkspacePool::Lease scratch(*workspaces_,
                                       transposed + pass->scratch_bytes(transforms, threads));
    if (transforms && spec_.shape.N > 0) {
        transpose_weights(spec_.shape, spec_.dtype, weights, scratch.data());
    }
    pass->run(
        {.src = diff_dst, .transformed = transformed, .weights = scratch.data(), .dst = diff_src},
        scratch.data() + transposed, threads);
}

void Conv2d::transform_weights(PassKind pass, const void* weights, float* transformed) const {
    if (pass == PassKind::forward) {
        winograd_.transform(pass, weights, transformed);
        return;
    }
    const WorkspacePool::Lease scratch(*workspaces_, packed_transposed_bytes(spec_));
    transpose_weights(spec_.shape, spec_.dtype, weights, scratch.data());
    winograd_.transform(pass, scratch.data(), transformed);
}

// With weights that are transformed in the call.
std::int64_t Conv2d::winograd_scratch_bytes(PassKind pass) const {
    const int threads = num_threads();
    if (pass == PassKind::backward_weights) {
        return winograd_.weights_pass()->scratch_bytes(spec_.dtype, threads);
    }
    const std::int64_t bytes = winograd_.pass(pass)->scratch_bytes(true, threads);
    return pass == PassKind::forward ? bytes : bytes + packed_transposed_bytes(spec_);
}

}  // namespace dlprim
