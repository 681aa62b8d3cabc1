#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "primitives/layers/batch_norm_pass.h"
#include "primitives/reorder/serial_moves.h"

namespace dlprim {
namespace {

class ForwardPass : NormPass {
public:
    ForwardPass(const BatchNorm& norm, const BatchNormForward& tensors)
        : NormPass(norm),
          tensors_(tensors),
          statistics_(program(PixelPass::statistics, rows_of(0, 0))),
          normalize_(program(PixelPass::normalize, normalized_rows(0, 0))),
          values_(3, channels_),
          before_(WorkspacePool::lasting(), (pieces_.count() + 1) * std::int64_t{sizeof(double)}) {
        weight_ = or_constant(tensors.weight, 1, values_.row(0), channels_);
        bias_ = or_constant(tensors.bias, 0, values_.row(1), channels_);
        before()[0] = 0;
        for (std::int64_t piece = 0; piece < pieces_.count(); ++piece) {
            before()[piece + 1] = before()[piece] + static_cast<double>(pieces_.size(piece));
        }
    }

    void run() const {
        if (tensors_.given_mean != nullptr) {
            std::copy_n(tensors_.given_mean, channels_, tensors_.mean);
            set_scale({0, channels_}, tensors_.given_variance);
            apply_to(*this, {0, panels_.blocks}, TaskOrder::ascending);
        } else {
            sum_and_apply(*this, tensors_.dst != nullptr);
        }
    }

private:
    friend NormPass;

    void add_up(std::int64_t piece, std::int64_t block) const {
        const Range channels = panels_.channels(block);
        PixelRows it = rows_of(piece, block);
        float* const centre = centres_.row(piece) + channels.begin;
        it.mean = centre;
        bool first = true;
        pieces_.for_images(piece, block, [&](std::int64_t bytes, std::int64_t) {
            it.src = at(tensors_.src, bytes);
            if (first) {
                if (norm_.tensor.dtype == DType::f32) {
                    std::copy_n(static_cast<const float*>(it.src), it.channels, centre);
                } else {
                    widen_row(static_cast<const std::uint16_t*>(it.src), centre, it.channels);
                }
                it.sums = sums_.row(piece) + channels.begin;
                it.products = products_.row(piece) + channels.begin;
                std::fill_n(it.sums, it.channels, 0.0F);
                std::fill_n(it.products, it.channels, 0.0F);
                first = false;
            }
            statistics_(it);
        });
    }

    // Means and sums of squared distances from them, merged as a tree (Chan, Golub, LeVeque 1983).
    void combine(Range channels) const {
        for (std::int64_t piece = 0; piece < pieces_.count(); ++piece) {
            const auto count = static_cast<float>(pieces_.size(piece));
            float *const mean = centres_.row(piece), *const squares = products_.row(piece);
            const float* const sum = sums_.row(piece);
            for (std::int64_t c = channels.begin; c < channels.end; ++c) {
                const float rest = sum[c] / count;
                mean[c] += rest;
                squares[c] -= sum[c] * rest;
            }
        }
        for (std::int64_t step = 1; step < pieces_.count(); step *= 2) {
            for (std::int64_t piece = 0; piece + step < pieces_.count(); piece += 2 * step) {
                merge({piece, piece + step}, std::min(piece + 2 * step, pieces_.count()), channels);
            }
        }
        std::array<float, kCombinedChannels> variance;
        const auto all = static_cast<float>(pixels());
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
            const float value = products_.row(0)[c] / all;
            variance[static_cast<std::size_t>(c - channels.begin)] = value < 0 ? 0 : value;
        }
        std::copy_n(centres_.row(0) + channels.begin, channels.size(),
                    tensors_.mean + channels.begin);
        set_scale(channels, variance.data());
        if (tensors_.variance != nullptr) {
            std::copy_n(variance.data(), channels.size(), tensors_.variance + channels.begin);
        }
    }

    // Pieces up to `end` into those of `into`, whose values stand in its first row.
    void merge(Range into, std::int64_t end, Range channels) const {
        const double here = before()[into.end] - before()[into.begin];
        const double there = before()[end] - before()[into.end], both = here + there;
        const auto share = static_cast<float>(there / both);
        const auto between = static_cast<float>(here * there / both);
        float *const mean = centres_.row(into.begin), *const squares = products_.row(into.begin);
        const float *const mean_from = centres_.row(into.end), *const from_squares =
                                                                   products_.row(into.end);
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
            const float distance = mean_from[c] - mean[c];
            mean[c] += distance * share;
            squares[c] += from_squares[c] + distance * distance * between;
        }
    }

    // variance[0] belongs to the first of the channels.
    void set_scale(Range channels, const float* variance) const {
        float* const scale = values_.row(2);
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
            tensors_.inverse_std[c] =
                1.0F / std::sqrt(variance[c - channels.begin] + norm_.epsilon);
            scale[c] = weight_[c] * tensors_.inverse_std[c];
        }
    }

    // With the pointers that decide what is computed.
    PixelRows normalized_rows(std::int64_t piece, std::int64_t block) const {
        PixelRows it = rows_of(piece, block);
        it.residual = tensors_.residual;
        it.relu_mask_out = tensors_.relu_mask;
        return it;
    }

    void apply(std::int64_t piece, std::int64_t block) const {
        const std::int64_t channel = panels_.channels(block).begin;
        PixelRows it = normalized_rows(piece, block);
        it.mean = tensors_.mean + channel;
        it.scale = values_.row(2) + channel;
        it.bias = bias_ + channel;
        pieces_.for_images(piece, block, [&](std::int64_t bytes, std::int64_t mask_bytes) {
            it.src = at(tensors_.src, bytes);
            it.residual = at(tensors_.residual, bytes);
            it.out = static_cast<char*>(tensors_.dst) + bytes;
            if (tensors_.relu_mask != nullptr) it.relu_mask_out = tensors_.relu_mask + mask_bytes;
            normalize_(it);
        });
    }

    double* before() const { return reinterpret_cast<double*>(before_.data()); }

    BatchNormForward tensors_;
    const PixelProgram& statistics_;
    const PixelProgram& normalize_;
    Rows values_;                  // weight and bias where absent, weight * inverse_std
    WorkspacePool::Lease before_;  // pixels of the pieces in front of each
    const float* weight_ = nullptr;
    const float* bias_ = nullptr;
};

}  // namespace

void batch_norm_forward(const BatchNorm& norm, const BatchNormForward& tensors) {
    const std::int64_t channels = norm.tensor.blocks.total();
    if (channels == 0) return;
    if (norm.tensor.images * norm.tensor.height * norm.tensor.width > 0) {
        ForwardPass(norm, tensors).run();
        return;
    }
    for (std::int64_t c = 0; c < channels; ++c) {
        const bool given = tensors.given_mean != nullptr;
        tensors.mean[c] = given ? tensors.given_mean[c] : 0;
        tensors.inverse_std[c] =
            1.0F / std::sqrt((given ? tensors.given_variance[c] : 0) + norm.epsilon);
        if (tensors.variance != nullptr) tensors.variance[c] = 0;
    }
}

}  // namespace dlprim
