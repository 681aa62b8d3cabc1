#include "primitives/conv/conv2d.h"
#include "primitives/depthwise/depthwise.h"
#include "primitives/tensor/pack.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// bfloat16 operands of one image and the float32 copies of them.
struct Copy {
    const void* from = nullptr;
    std::int64_t elements = 0;  // of an image
    float* to = nullptr;

    void widen(std::int64_t image) const {
        widen_to_f32(static_cast<const std::uint16_t*>(from) + image * elements, to, elements);
    }
};

}  // namespace

// Of one image: src, dst, residual; and of the weights.
std::int64_t Conv2d::float32_copies_bytes() const {
    if (spec_.dtype == DType::f32) return 0;
    const ConvShape& shape = spec_.shape;
    const ChannelBlocks blocks = src_blocks(shape);
    const std::int64_t src = activation_strides(spec_.layout, blocks, shape.H, shape.W).image;
    const std::int64_t dst = activation_strides(spec_.layout, blocks, shape.P(), shape.Q()).image;
    return (src + 2 * dst + packed_weights_size(shape, DType::f32)) * size_of(DType::f32);
}

std::int64_t Conv2d::depthwise_scratch_bytes(PassKind pass) const {
    const Depthwise problem{spec_.shape, spec_.dtype, spec_.layout};
    switch (pass) {
        case PassKind::forward:
            return activates_afterwards(spec_.activation == Activation::relu)
                       ? float32_copies_bytes()
                       : 0;
        case PassKind::backward_data: return depthwise_data_scratch_bytes(problem);
        default: return depthwise_weights_scratch_bytes(problem);
    }
}

// The activation of a depthwise convolution is a pass of its own, and a result is rounded once: so
// both passes run in float32, one image at a time. The image of dst is copied as well, because what
// stands behind its last channel stays.
void Conv2d::depthwise_through_float32(const ConvForward& tensors) const {
    ConvShape one = spec_.shape;
    one.N = 1;
    const ChannelBlocks blocks = src_blocks(one);
    const std::int64_t src_size = activation_strides(spec_.layout, blocks, one.H, one.W).image;
    const std::int64_t dst_size = activation_strides(spec_.layout, blocks, one.P(), one.Q()).image;
    const std::int64_t weights_size = packed_weights_size(one, DType::f32);
    const WorkspacePool::Lease scratch(*workspaces_, float32_copies_bytes());
    auto* const first = reinterpret_cast<float*>(scratch.data());
    const Copy src{tensors.src, src_size, first};
    const Copy dst{tensors.dst, dst_size, src.to + src_size};
    const Copy residual{tensors.residual, dst_size, dst.to + dst_size};
    const Copy weights{tensors.weights, weights_size, residual.to + dst_size};
    if (spec_.shape.N > 0) weights.widen(0);
    const auto activation = one_image_activation(tensors.relu_mask != nullptr);
    const std::int64_t mask_image =
        activation->contraction().mask_offset(activation->contraction().loops[1].c);
    for (std::int64_t image = 0; image < spec_.shape.N; ++image) {
        src.widen(image);
        dst.widen(image);
        if (tensors.residual != nullptr) residual.widen(image);
        depthwise_forward({one, DType::f32, spec_.layout},
                          {.src = src.to,
                           .weights = weights.to,
                           .bias = tensors.bias,
                           .residual = tensors.residual == nullptr ? nullptr : residual.to,
                           .dst = dst.to});
        std::uint8_t* const mask =
            tensors.relu_mask == nullptr ? nullptr : tensors.relu_mask + image * mask_image;
        activation->run({.c = dst.to, .relu_mask = mask, .accumulate = true}, nullptr,
                        num_threads());
        round_to_bf16(dst.to, static_cast<std::uint16_t*>(tensors.dst) + image * dst_size,
                      dst_size);
    }
}

}  // namespace dlprim
