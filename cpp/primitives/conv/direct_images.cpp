// The direct passes whose results are images: forward and backward data.
#include "primitives/conv/conv_activation.h"
#include "primitives/conv/conv_contraction.h"
#include "primitives/conv/conv_pass.h"
#include "primitives/nest/widened_product.h"
#include "primitives/reorder/patches.h"
#include "primitives/reorder/reorder.h"
#include "primitives/reorder/rim.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// What becomes of a residual: it is added at last or, where sums pass through dst and the residual
// stands there, they continue it.
enum Residual : std::int64_t { kNone, kAdded, kContinued };
constexpr std::int64_t kMasked = 3;  // added to these: the mask of relu is written

class DirectForward final : public ConvPass {
public:
    explicit DirectForward(const ConvSpec& spec)
        : spec_(spec),
          joined_bytes_(needs_joined_weights(spec.problem())
                            ? aligned(joined_weights_bytes(spec.problem()))
                            : 0),
          shares_mask_(spec.layout == Format::nhwc && spec.shape.groups > 1 &&
                       spec.shape.group_K() % 8 != 0),
          activation_(spec.problem(), spec.activation),
          nest_({.contraction = [this](std::int64_t variant) { return contraction(variant); }}) {}

    void run(const ConvTensors& it) const override {
        const bool masked = it.relu_mask != nullptr;
        Residual residual = it.residual != nullptr ? kAdded : kNone;
        auto plan = nest_.plan(variant(residual, masked));
        if (it.residual == it.result && plan->sums_pass_through_c()) {
            residual = kContinued;
            plan = nest_.plan(variant(residual, masked));
        }
        const int threads = num_threads();
        const WorkspacePool::Lease scratch(workspaces(),
                                           joined_bytes_ + plan->scratch_bytes() * threads);
        if (joined_bytes_ > 0) join_weights(spec_.problem(), it.weights, scratch.data());
        plan->run({.a = it.src,
                   .b = joined_bytes_ > 0 ? scratch.data() : it.weights,
                   .c = it.result,
                   .bias = it.bias,
                   .residual = residual == kAdded ? it.residual : nullptr,
                   .relu_mask = it.relu_mask,
                   .accumulate = residual == kContinued},
                  scratch.data() + joined_bytes_, threads);
        if (masked && shares_mask_) activation_.run(it.result, it.relu_mask);
    }

    std::int64_t scratch_bytes() const override {
        return joined_bytes_ + nest_.typical_plan()->scratch_bytes() * num_threads();
    }

    ScheduledNest* nest() const override { return &nest_; }

private:
    static std::int64_t variant(Residual residual, bool masked) {
        return residual + (masked ? kMasked : 0);
    }

    Contraction contraction(std::int64_t variant) const {
        const bool masked = variant >= kMasked;
        const std::int64_t residual = variant % kMasked;
        const bool apart = masked && shares_mask_;
        Contraction made = forward_contraction(
            spec_.problem(), {.bias = spec_.bias,
                              .residual = residual == kAdded,
                              .activation = apart ? Activation::none : spec_.activation,
                              .relu_mask = masked && !apart});
        made.accumulates = residual == kContinued;
        return made;
    }

    ConvSpec spec_;
    std::int64_t joined_bytes_;
    bool shares_mask_;  // groups have bytes of the mask in common
    ConvActivation activation_;
    mutable ScheduledPass nest_;
};

// Up to this many channels, pixels of whole words are worth a copy.
constexpr std::int64_t kChannelsToWiden = 16;

// Of channels-last images with a few channels, whose weights have whole words anyway.
bool widens_pixels(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    return problem.layout == Format::nhwc && shape.groups == 1 && shape.C < kChannelsToWiden &&
           shape.C % elements_per_word(problem.dtype) != 0 && shape.S > 1;
}

// What padding is around 8-bit images.
Rim rim_of(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const ChannelBlocks blocks = src_blocks(shape, problem.dtype);
    const bool nhwc = problem.layout == Format::nhwc;
    const std::int64_t pixel = nhwc ? blocks.total() : blocks.block;
    return {.planes = nhwc ? shape.N : shape.N * blocks.count(),
            .rows = shape.H,
            .pixels = shape.W,
            .pixel_bytes = pixel,
            .wide_pixel_bytes = widens_pixels(problem) ? depth_blocks(problem).block : pixel,
            .above = shape.pad_top,
            .below = shape.pad_bottom,
            .before = shape.pad_left,
            .behind = shape.pad_right};
}

ConvSpec with_rim(ConvSpec spec) {
    if (widens_pixels(spec.problem())) spec.shape.C = depth_blocks(spec.problem()).block;
    ConvShape& shape = spec.shape;
    shape.H += shape.pad_top + shape.pad_bottom;
    shape.W += shape.pad_left + shape.pad_right;
    shape.pad_top = shape.pad_bottom = shape.pad_left = shape.pad_right = 0;
    return spec;
}

// Another pass, on images with a rim.
class RimmedForward final : public ConvPass {
public:
    RimmedForward(const Rim& rim, std::unique_ptr<ConvPass> pass)
        : rim_(rim), rim_bytes_(aligned(rim.bytes())), pass_(std::move(pass)) {}

    void run(const ConvTensors& given) const override {
        const WorkspacePool::Lease scratch(workspaces(), rim_bytes_);
        copy_with_rim(rim_, given.src, given.quantization.src_zero_point, scratch.data());
        ConvTensors tensors = given;
        tensors.src = scratch.data();
        pass_->run(tensors);
    }

    std::int64_t scratch_bytes() const override { return rim_bytes_ + pass_->scratch_bytes(); }
    ScheduledNest* nest() const override { return pass_->nest(); }

private:
    Rim rim_;
    std::int64_t rim_bytes_;
    std::unique_ptr<ConvPass> pass_;
};

// From rows of so many pixels on a product of one row is as good as one of several.
constexpr std::int64_t kShortRow = 28;
// Of patches at a time, which the product reads again for each block of channels.
constexpr std::int64_t kPatchBytes = 512 * 1024;

Patches patches_of(const ConvShape& shape) {
    Patches made{.images = shape.N,
                 .height = shape.H,
                 .width = shape.W,
                 .pixel_bytes = shape.C,
                 .P = shape.P(),
                 .Q = shape.Q(),
                 .R = shape.R,
                 .S = shape.S,
                 .stride_h = shape.stride_h,
                 .stride_w = shape.stride_w,
                 .above = shape.pad_top,
                 .before = shape.pad_left};
    while (made.images > 1 && (shape.N % made.images != 0 || made.bytes() > kPatchBytes)) {
        --made.images;
    }
    return made;
}

// Of all pixels of some images as one row.
ConvSpec of_patches(ConvSpec spec) {
    const Patches patches = patches_of(spec.shape);
    spec.shape = {.N = 1,
                  .C = patches.R * patches.S * spec.shape.C,
                  .H = 1,
                  .W = patches.images * patches.P * patches.Q,
                  .K = spec.shape.K,
                  .R = 1,
                  .S = 1};
    return spec;
}

// A few images after the other, as products of what the filter sees of them.
class PatchedForward final : public ConvPass {
public:
    explicit PatchedForward(const ConvSpec& spec)
        : steps_(spec.shape.N / patches_of(spec.shape).images),
          patches_(patches_of(spec.shape)),
          src_bytes_(patches_.images * patches_.height * patches_.width * patches_.pixel_bytes),
          dst_bytes_(patches_.images * patches_.P * patches_.Q * spec.shape.K *
                     size_of(spec.problem().result())),
          pass_(quantized_forward_pass(of_patches(spec))) {}

    void run(const ConvTensors& given) const override {
        const WorkspacePool::Lease scratch(workspaces(), aligned(patches_.bytes()));
        ConvTensors tensors = given;
        tensors.src = scratch.data();
        for (std::int64_t step = 0; step < steps_; ++step) {
            const auto* const src = static_cast<const char*>(given.src) + step * src_bytes_;
            copy_patches(patches_, src, given.quantization.src_zero_point, scratch.data());
            tensors.result = static_cast<char*>(given.result) + step * dst_bytes_;
            if (given.residual != nullptr) {
                tensors.residual = static_cast<const char*>(given.residual) + step * dst_bytes_;
            }
            pass_->run(tensors);
        }
    }

    std::int64_t scratch_bytes() const override {
        return aligned(patches_.bytes()) + pass_->scratch_bytes();
    }
    ScheduledNest* nest() const override { return pass_->nest(); }

private:
    std::int64_t steps_;
    Patches patches_;
    std::int64_t src_bytes_;  // of the images of a step
    std::int64_t dst_bytes_;
    std::unique_ptr<ConvPass> pass_;
};

// What stands in front of the result of an 8-bit convolution.
enum Sum : std::int64_t { kAlone, kWithResidual, kRoundedWithResidual };

// Of 8-bit operands without padding. Its variants are these sums.
class QuantizedForward final : public ConvPass {
public:
    explicit QuantizedForward(const ConvSpec& spec)
        : spec_(spec),
          widened_(contraction(kAlone), ConvImages(spec.problem(), spec.shape).src.bytes(),
                   weights_layout(spec.problem()).bytes()),
          nest_(
              {.contraction = [this](std::int64_t sum) { return widened_.of(contraction(sum)); }}) {
    }

    void run(const ConvTensors& it) const override {
        const Quantization& with = it.quantization;
        const auto plan = nest_.plan(it.residual == nullptr ? kAlone
                                     : with.inner           ? kRoundedWithResidual
                                                            : kWithResidual);
        const int threads = num_threads();
        const std::int64_t words = widened_.scratch_bytes();
        const WorkspacePool::Lease scratch(workspaces(), words + plan->scratch_bytes() * threads);
        ContractionOperands operands{
            .a = it.src,
            .b = it.weights,
            .c = it.result,
            .int_bias = with.int_bias,
            .scale = with.scale,
            .bias = it.bias,
            .residual = it.residual,
            .residual_scale = with.residual_scale,
            .inner = with.inner.value_or(InnerRounding{}),
            .range = held_range(with.range, spec_.dst_dtype, spec_.activation)};
        widened_.widen(operands, scratch.data());
        plan->run(operands, scratch.data() + words, threads);
    }

    std::int64_t scratch_bytes() const override {
        return widened_.scratch_bytes() + nest_.typical_plan()->scratch_bytes() * num_threads();
    }

    ScheduledNest* nest() const override { return &nest_; }

private:
    Contraction contraction(std::int64_t sum) const {
        return forward_contraction(spec_.problem(), quantized({.int_bias = spec_.int_bias,
                                                               .bias = spec_.bias,
                                                               .residual = sum != kAlone,
                                                               .inner = sum == kRoundedWithResidual,
                                                               .activation = spec_.activation},
                                                              spec_.dst_dtype));
    }

    ConvSpec spec_;
    WidenedProduct widened_;
    mutable ScheduledPass nest_;
};

// Whether the zeros between strided pixels are written beside them: the plan for that needs results
// on cache lines.
enum Cells : std::int64_t { kAnyResult, kOnLines };

// As the pass multiplies them.
Layout other_weights_layout(const ConvProblem& problem) {
    return prefers_windows(problem) ? window_weights_layout(problem)
                                    : transposed_weights_layout(problem.shape, problem.dtype);
}

class DirectData final : public ConvPass {
public:
    explicit DirectData(const ConvSpec& spec)
        : problem_(spec.problem()),
          on_lines_(has_cells(problem_) ? kOnLines : kAnyResult),
          weights_bytes_(aligned(other_weights_layout(problem_).bytes())),
          to_other_form_(weights_layout(problem_), other_weights_layout(problem_)),
          nest_({.contraction = [this](std::int64_t cells) { return contraction(cells); },
                 .typical = on_lines_}) {}

    void run(const ConvTensors& it) const override {
        const bool is_on_line = reinterpret_cast<std::intptr_t>(it.result) % kCacheLineBytes == 0;
        const auto plan = nest_.plan(is_on_line ? on_lines_ : kAnyResult);
        const int threads = num_threads();
        const WorkspacePool::Lease scratch(workspaces(),
                                           weights_bytes_ + plan->scratch_bytes() * threads);
        if (problem_.shape.N > 0) to_other_form_.run(it.weights, scratch.data());
        plan->run({.a = it.diff_dst, .b = scratch.data(), .c = it.result},
                  scratch.data() + weights_bytes_, threads);
    }

    std::int64_t scratch_bytes() const override {
        return weights_bytes_ + nest_.plan(kAnyResult)->scratch_bytes() * num_threads();
    }

    ScheduledNest* nest() const override { return &nest_; }

private:
    Contraction contraction(std::int64_t cells) const {
        if (prefers_windows(problem_)) return window_data_contraction(problem_);
        return cells == kOnLines ? cell_data_contraction(problem_)
                                 : backward_data_contraction(problem_);
    }

    ConvProblem problem_;
    Cells on_lines_;
    std::int64_t weights_bytes_;  // of their other form, in scratch
    Reorder to_other_form_;
    mutable ScheduledPass nest_;
};

}  // namespace

std::unique_ptr<ConvPass> direct_forward_pass(const ConvSpec& spec) {
    return std::make_unique<DirectForward>(spec);
}

std::unique_ptr<ConvPass> quantized_forward_pass(const ConvSpec& spec) {
    return std::make_unique<QuantizedForward>(spec);
}

bool takes_patches(const ConvProblem& problem) {
    const ConvShape& shape = problem.shape;
    const bool pointwise = shape.R * shape.S == 1 && shape.stride_h * shape.stride_w == 1;
    return problem.layout == Format::nhwc && shape.groups == 1 && !pointwise && shape.N > 0 &&
           shape.dilation_h * shape.dilation_w == 1 && shape.Q() < kShortRow &&
           shape.C % elements_per_word(problem.dtype) == 0;
}

std::unique_ptr<ConvPass> patched_forward_pass(const ConvSpec& spec) {
    return std::make_unique<PatchedForward>(spec);
}

std::unique_ptr<ConvPass> rimmed_forward_pass(const ConvSpec& spec, MakeConvPass make) {
    const Rim rim = rim_of(spec.problem());
    if (rim.is_empty()) return make(spec);
    return std::make_unique<RimmedForward>(rim, make(with_rim(spec)));
}

std::unique_ptr<ConvPass> direct_data_pass(const ConvSpec& spec) {
    return std::make_unique<DirectData>(spec);
}

}  // namespace dlprim
