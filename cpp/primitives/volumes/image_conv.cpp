#include "primitives/volumes/image_conv.h"

#include "primitives/conv/conv2d.h"
#include "primitives/conv/plain_conv.h"
#include "primitives/volumes/volume_conv.h"

namespace dlprim {
namespace {

// Filters of a group, up to which lanes of blocks are mostly empty; and of one pixel, up to which
// blocks have too few products for each element that is copied. With more, kernels that blocks
// share between images of any size are worth more (tests/test_new_shapes.py).
constexpr std::int64_t kFewFilters = 4;
constexpr std::int64_t kFewPointwise = 32;
// Times the elements of the images, which a copy with its padding may hold.
constexpr std::int64_t kMostPadding = 8;

bool may_be_product(const ConvSpec& spec) {
    const ConvShape& it = spec.shape;
    if (spec.layout != Format::blocked || spec.algorithm != ConvAlgorithm::automatic ||
        spec.activation != Activation::none || it.N == 0) {
        return false;
    }
    const std::int64_t padded =
        (it.H + it.pad_top + it.pad_bottom) * (it.W + it.pad_left + it.pad_right);
    if (padded > kMostPadding * it.H * it.W) return false;
    const bool is_pointwise =
        it.R * it.S * it.stride_h * it.stride_w == 1 && it.P() == it.H && it.Q() == it.W;
    return it.group_K() <= (is_pointwise ? kFewPointwise : kFewFilters);
}

VolumeConvSpec as_volumes(const ConvSpec& spec) {
    const ConvShape& it = spec.shape;
    return {.shape = {.N = it.N,
                      .C = it.C,
                      .K = it.K,
                      .groups = it.groups,
                      .axes = {VolumeAxis{},
                               {.extent = it.H,
                                .taps = it.R,
                                .step = it.stride_h,
                                .spread = it.dilation_h,
                                .before = it.pad_top,
                                .results = it.P()},
                               {.extent = it.W,
                                .taps = it.S,
                                .step = it.stride_w,
                                .spread = it.dilation_w,
                                .before = it.pad_left,
                                .results = it.Q()}}},
            .dtype = spec.dtype,
            .bias = spec.bias};
}

}  // namespace

ImageConv::ImageConv(const ConvSpec& spec) : on_blocks_(std::make_unique<const PlainConv>(spec)) {}

ImageConv::~ImageConv() = default;

const VolumeConv* ImageConv::product() const {
    std::call_once(is_chosen_, [&] {
        const ConvSpec& spec = on_blocks_->spec();
        if (!may_be_product(spec)) return;
        auto made = std::make_unique<const VolumeConv>(as_volumes(spec));
        if (made->is_faster(PassKind::forward)) product_ = std::move(made);
    });
    return product_.get();
}

void ImageConv::forward(const ConvForward& tensors) const {
    const VolumeConv* const by_product = tensors.residual == nullptr ? product() : nullptr;
    if (by_product == nullptr) return on_blocks_->forward(tensors);
    by_product->forward(tensors.src, tensors.weights, tensors.bias, tensors.dst);
}

void ImageConv::backward(const PlainConvGradients& tensors) const { on_blocks_->backward(tensors); }

}  // namespace dlprim
