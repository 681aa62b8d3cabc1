#include "primitives/depthwise/depthwise.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "primitives/conv/conv_activation.h"
#include "primitives/depthwise/depthwise_geometry.h"
#include "primitives/reorder/pack.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// What a task writes: long enough to hide the cost of handing it out, short enough for the rows
// that it reads to stay in the L2 cache.
constexpr std::int64_t kTaskBytes = 128 * 1024;

// What one result sees along an axis, or, in backward-data, the results that are a stride apart and
// so see the same taps: tap first_tap + i * every at `position` + i * `spread` of what is read.
struct Phase {
    std::int64_t taps = 0;
    std::int64_t first_tap = 0;
    std::int64_t every = 1;
    std::int64_t position = 0;  // may be negative
    std::int64_t spread = 1;
};

Phase forward_phase(const DepthwiseAxis& axis, std::int64_t result) {
    return {.taps = axis.taps, .position = axis.position(result, 0), .spread = axis.spread};
}

Phase backward_phase(const DepthwiseAxis& axis, std::int64_t input) {
    const std::int64_t common = std::gcd(axis.step, axis.spread);
    Phase found{.every = -axis.step / common, .spread = axis.spread / common};
    for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
        const std::int64_t distance = input + axis.before - tap * axis.spread;
        if (distance % axis.step != 0) continue;
        ++found.taps;
        found.first_tap = tap;
        found.position = distance / axis.step;
    }
    return found;
}

// How many of first, first + step, ... (`count` of them) are below `bound`.
std::int64_t count_below(std::int64_t bound, std::int64_t first, std::int64_t step,
                         std::int64_t count) {
    return std::clamp<std::int64_t>((bound - first + step - 1) / step, 0, count);
}

// Forward: src to dst. Backward-data: diff_dst to diff_src, with the taps from the last to the
// first, a phase of columns after the other.
class RowByRow {
public:
    RowByRow(const ConvProblem& problem, PassKind pass)
        : problem_(problem),
          blocks_(src_blocks(problem.shape)),
          convolve_(convolve_row_function(usable_isa(), problem.dtype)) {
        const ConvShape& shape = problem.shape;
        const bool forward = pass == PassKind::forward;
        from_ = forward ? src_plane(problem) : dst_plane(problem);
        to_ = forward ? dst_plane(problem) : src_plane(problem);
        height_ = forward ? shape.H : shape.P();
        step_ = forward ? shape.stride_h : 1;
        const auto phase = forward ? forward_phase : backward_phase;
        const std::int64_t results = forward ? shape.P() : shape.H;
        for (std::int64_t row = 0; row < results; ++row) {
            rows_.push_back(phase(vertical(shape), row));
        }
        const std::int64_t apart = forward ? 1 : shape.stride_w;
        const std::int64_t columns = forward ? shape.Q() : shape.W;
        for (std::int64_t first = 0; first < std::min(apart, columns); ++first) {
            RowConvolution row = along(phase(horizontal(shape), first));
            row.step = forward ? shape.stride_w : 1;
            row.width = forward ? shape.W : shape.Q();
            row.dst_distance = apart * to_.pixel;
            row.results = (columns - first - 1) / apart + 1;
            row.dst_ahead = rows_ahead(columns) * to_.row;
            columns_.push_back(row);
        }
    }

    // `from` is src or diff_dst.
    void run(const void* from, const ConvTensors& tensors, bool relu) const {
        for_rows([&](std::int64_t n, std::int64_t b, std::int64_t h) {
            const Phase& rows = rows_[static_cast<std::size_t>(h)];
            const std::int64_t before = count_below(0, rows.position, rows.spread, rows.taps);
            const std::int64_t behind = count_below(height_, rows.position, rows.spread, rows.taps);
            const std::int64_t r = rows.first_tap + before * rows.every;
            const std::int64_t tap = (b * problem_.shape.R + r) * problem_.shape.S * blocks_.block;
            std::int64_t offset = to_.offset(n, b, h, 0);
            for (RowConvolution row : columns_) {
                row.src = at(from, from_.offset(n, b, rows.position + before * rows.spread, 0));
                row.weights = at(tensors.weights, tap * from_.element);
                row.src_row = rows.spread * from_.row;
                row.weights_row = rows.every * problem_.shape.S * blocks_.block;
                row.row_count = behind - before;
                row.fresh_rows = std::min(row.row_count, row.fresh_rows);
                row.channels = blocks_.in_block(b);
                if (tensors.bias != nullptr) row.bias = tensors.bias + b * blocks_.block;
                if (tensors.residual != nullptr) row.residual = at(tensors.residual, offset);
                row.relu = relu;
                row.dst = at(tensors.result, offset);
                convolve_(row);
                offset += to_.pixel * to_.element;
            }
        });
    }

private:
    // What the rows of all results share.
    RowConvolution along(const Phase& columns) const {
        return {.fetches = fetches_rows(problem_),
                .fresh_rows = columns_.empty() ? step_ : 0,
                .src_ahead = rows_ahead(problem_.shape.Q()) * step_ * from_.row,
                .taps = columns.taps,
                .first_tap = columns.first_tap * blocks_.block,
                .tap_distance = columns.every * blocks_.block,
                .spread = columns.spread,
                .column = columns.position,
                .src_distance = from_.pixel};
    }

    // body(image, block, row) for every row of results. Neighbouring rows go to one thread, since
    // they read the same rows.
    template <class Body>
    void for_rows(const Body& body) const {
        const std::int64_t row_bytes = to_.row * to_.element;
        const Blocks bands{static_cast<std::int64_t>(rows_.size()),
                           std::max<std::int64_t>(kTaskBytes / row_bytes, 1)};
        const Blocks groups = block_groups(problem_);
        // Blocked, a block of an image is contiguous; channels-last, a row of all blocks is.
        const bool blocked = problem_.layout == Format::blocked;
        const std::int64_t inner = blocked ? bands.count() : groups.count();
        const std::int64_t outer = blocked ? groups.count() : bands.count();
        parallel_for(problem_.shape.N * inner * outer, [&](std::int64_t task) {
            const std::int64_t n = task / (inner * outer);
            const std::int64_t i = task / inner % outer;
            const std::int64_t j = task % inner;
            const Range band = bands.at(blocked ? j : i);
            const Range group = groups.at(blocked ? i : j);
            for (std::int64_t row = band.begin; row < band.end; ++row) {
                for (std::int64_t b = group.begin; b < group.end; ++b) body(n, b, row);
            }
        });
    }

    ConvProblem problem_;
    ChannelBlocks blocks_;
    ConvolveRow convolve_;
    Plane from_;
    Plane to_;
    std::int64_t height_;  // of what is read
    std::int64_t step_;    // rows of it from result to result
    std::vector<Phase> rows_;
    std::vector<RowConvolution> columns_;
};

void widen(const void* from, std::int64_t first, std::int64_t elements, float* to) {
    widen_to_f32(static_cast<const std::uint16_t*>(from) + first, to, elements);
}

ConvProblem one_float32_image(const ConvProblem& problem) {
    ConvProblem one{problem.shape, DType::f32, problem.layout};
    one.shape.N = 1;
    return one;
}

class DepthwiseForward final : public ConvPass {
public:
    explicit DepthwiseForward(const ConvSpec& spec)
        : problem_(spec.problem()),
          activation_(spec.activation),
          src_(src_plane(problem_).image),
          dst_(dst_plane(problem_).image),
          weights_(packed_weights_size(spec.shape, DType::f32)),
          rows_(spec.problem(), PassKind::forward),
          image_rows_(one_float32_image(spec.problem()), PassKind::forward),
          activation_pass_(spec.problem(), spec.activation),
          image_activation_(one_float32_image(spec.problem()), spec.activation) {}

    void run(const ConvTensors& it) const override {
        const bool apart = activates_apart(activation_, it.relu_mask != nullptr);
        if (apart && problem_.dtype != DType::f32) return run_through_float32(it);
        rows_.run(it.src, it, !apart && activation_ == Activation::relu);
        if (apart) activation_pass_.run(it.result, it.relu_mask);
    }

    std::int64_t scratch_bytes() const override {
        const bool copies = problem_.dtype != DType::f32 && activation_ != Activation::none;
        return copies ? copies_bytes() : 0;
    }

private:
    // In float32, with the residual as well.
    std::int64_t copies_bytes() const { return (src_ + 2 * dst_ + weights_) * size_of(DType::f32); }

    // An activation apart is a pass of its own, and a result is rounded once: so both passes run in
    // float32, one image at a time. The image of dst is copied as well, because what stands behind
    // its last channel stays.
    void run_through_float32(const ConvTensors& it) const {
        const WorkspacePool::Lease scratch(workspaces(), copies_bytes());
        auto* const src = reinterpret_cast<float*>(scratch.data());
        float* const dst = src + src_;
        float* const residual = dst + dst_;
        float* const weights = residual + dst_;
        if (problem_.shape.N > 0) widen(it.weights, 0, weights_, weights);
        for (std::int64_t image = 0; image < problem_.shape.N; ++image) {
            const std::int64_t first_dst = image * dst_;
            widen(it.src, image * src_, src_, src);
            widen(it.result, first_dst, dst_, dst);
            if (it.residual != nullptr) widen(it.residual, first_dst, dst_, residual);
            image_rows_.run(src,
                            {.weights = weights,
                             .bias = it.bias,
                             .residual = it.residual == nullptr ? nullptr : residual,
                             .result = dst},
                            false);
            image_activation_.run(dst, it.relu_mask == nullptr
                                           ? nullptr
                                           : it.relu_mask + image * image_activation_.mask_image());
            round_to_bf16(dst, static_cast<std::uint16_t*>(it.result) + first_dst, dst_);
        }
    }

    ConvProblem problem_;
    Activation activation_;
    std::int64_t src_;  // elements of one image
    std::int64_t dst_;
    std::int64_t weights_;
    RowByRow rows_;
    RowByRow image_rows_;  // of one image in float32
    ConvActivation activation_pass_;
    ConvActivation image_activation_;
};

class DepthwiseData final : public ConvPass {
public:
    explicit DepthwiseData(const ConvSpec& spec) : rows_(spec.problem(), PassKind::backward_data) {}

    void run(const ConvTensors& it) const override {
        rows_.run(it.diff_dst, {.weights = it.weights, .result = it.result}, false);
    }

    std::int64_t scratch_bytes() const override { return 0; }

private:
    RowByRow rows_;
};

class DepthwiseWeights final : public ConvPass {
public:
    explicit DepthwiseWeights(const ConvSpec& spec) : problem_(spec.problem()) {}

    void run(const ConvTensors& it) const override {
        const WorkspacePool::Lease scratch(workspaces(), scratch_bytes());
        depthwise_backward_weights(problem_, it, scratch.data());
    }

    std::int64_t scratch_bytes() const override {
        return depthwise_weights_scratch_bytes(problem_);
    }

private:
    ConvProblem problem_;
};

}  // namespace

std::unique_ptr<ConvPass> depthwise_pass(const ConvSpec& spec, PassKind pass) {
    switch (pass) {
        case PassKind::forward: return std::make_unique<DepthwiseForward>(spec);
        case PassKind::backward_data: return std::make_unique<DepthwiseData>(spec);
        default: return std::make_unique<DepthwiseWeights>(spec);
    }
}

}  // namespace dlprim
