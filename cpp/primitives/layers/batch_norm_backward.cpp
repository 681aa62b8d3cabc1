#include <algorithm>
#include <cstdint>

#include "primitives/layers/batch_norm_pass.h"

namespace dlprim {
namespace {

class BackwardPass : NormPass {
public:
    BackwardPass(const BatchNorm& norm, const BatchNormBackward& tensors)
        : NormPass(norm),
          tensors_(tensors),
          add_gradients_(program(PixelPass::add_gradients, summed_rows(0, 0))),
          apply_gradients_(program(PixelPass::apply_gradients, applied_rows(0, 0))),
          values_(5, channels_) {
        weight_ = or_constant(tensors.weight, 1, values_.row(0), channels_);
        bias_ = or_constant(tensors.bias, 0, values_.row(1), channels_);
        for (std::int64_t c = 0; c < channels_; ++c) {
            scale()[c] = weight_[c] * tensors.inverse_std[c];
        }
    }

    void run() const {
        if (tensors_.given_diff_weight != nullptr) {
            set_means({0, channels_}, tensors_.given_diff_weight, tensors_.given_diff_bias,
                      tensors_.given_pixels);
            apply_to(*this, {0, panels_.blocks}, TaskOrder::ascending);
        } else {
            sum_and_apply(*this, tensors_.diff_src != nullptr);
        }
    }

private:
    friend NormPass;

    float* scale() const { return values_.row(2); }
    float* mean_diff() const { return values_.row(3); }
    float* mean_slope() const { return values_.row(4); }

    // With the pointers that decide what is computed.
    PixelRows summed_rows(std::int64_t piece, std::int64_t block) const {
        PixelRows it = rows_of(piece, block);
        it.diff_addend = tensors_.diff_addend;
        it.saved = tensors_.dst;
        it.relu_mask = tensors_.relu_mask;
        it.out = tensors_.diff_residual;
        return it;
    }
    PixelRows applied_rows(std::int64_t piece, std::int64_t block) const {
        PixelRows it = summed_rows(piece, block);
        // What passed relu may be there already.
        if (tensors_.diff_residual != nullptr) it.relu = false;
        return it;
    }

    void set_columns(PixelRows& it, std::int64_t block) const {
        const std::int64_t channel = panels_.channels(block).begin;
        it.mean = tensors_.mean + channel;
        it.scale = scale() + channel;
        it.bias = bias_ + channel;
    }

    void set_gate(PixelRows& it, std::int64_t bytes, std::int64_t mask_bytes) const {
        it.diff_dst = at(tensors_.diff_dst, bytes);
        it.src = at(tensors_.src, bytes);
        it.saved = at(tensors_.dst, bytes);
        if (tensors_.relu_mask != nullptr) it.relu_mask = tensors_.relu_mask + mask_bytes;
    }

    void add_up(std::int64_t piece, std::int64_t block) const {
        const std::int64_t channel = panels_.channels(block).begin;
        PixelRows it = summed_rows(piece, block);
        set_columns(it, block);
        it.sums = sums_.row(piece) + channel;
        it.products = products_.row(piece) + channel;
        std::fill_n(it.sums, it.channels, 0.0F);
        std::fill_n(it.products, it.channels, 0.0F);
        pieces_.for_images(piece, block, [&](std::int64_t bytes, std::int64_t mask_bytes) {
            set_gate(it, bytes, mask_bytes);
            it.diff_addend = at(tensors_.diff_addend, bytes);
            if (tensors_.diff_residual != nullptr) {
                it.out = static_cast<char*>(tensors_.diff_residual) + bytes;
            }
            add_gradients_(it);
        });
    }

    void combine(Range channels) const {
        add_as_tree(sums_.copies(), channels);
        add_as_tree(products_.copies(), channels);
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
            tensors_.diff_bias[c] = sums_.row(0)[c];
            tensors_.diff_weight[c] = products_.row(0)[c] * tensors_.inverse_std[c];
        }
        set_means(channels, tensors_.diff_weight, tensors_.diff_bias, pixels());
    }

    // What is taken from the gradient of each pixel because the statistics depend on it.
    void set_means(Range channels, const float* weight_sum, const float* bias_sum,
                   double pixels) const {
        const auto share = static_cast<float>(tensors_.is_given ? 0 : 1 / pixels);
        for (std::int64_t c = channels.begin; c < channels.end; ++c) {
            mean_diff()[c] = bias_sum[c] * share;
            mean_slope()[c] = weight_sum[c] * tensors_.inverse_std[c] * share;
        }
    }

    void apply(std::int64_t piece, std::int64_t block) const {
        const std::int64_t channel = panels_.channels(block).begin;
        PixelRows it = applied_rows(piece, block);
        set_columns(it, block);
        it.mean_diff = mean_diff() + channel;
        it.mean_slope = mean_slope() + channel;
        pieces_.for_images(piece, block, [&](std::int64_t bytes, std::int64_t mask_bytes) {
            set_gate(it, bytes, mask_bytes);
            if (!it.relu && tensors_.diff_residual != nullptr) {
                it.diff_dst = at(tensors_.diff_residual, bytes);
            }
            it.out = static_cast<char*>(tensors_.diff_src) + bytes;
            apply_gradients_(it);
        });
    }

    BatchNormBackward tensors_;
    const PixelProgram& add_gradients_;
    const PixelProgram& apply_gradients_;
    Rows values_;
    const float* weight_ = nullptr;
    const float* bias_ = nullptr;
};

}  // namespace

void batch_norm_backward(const BatchNorm& norm, const BatchNormBackward& tensors) {
    if (norm.tensor.images * norm.tensor.height * norm.tensor.width > 0) {
        BackwardPass(norm, tensors).run();
        return;
    }
    if (tensors.given_diff_weight != nullptr) return;
    std::fill_n(tensors.diff_weight, norm.tensor.blocks.total(), 0.0F);
    std::fill_n(tensors.diff_bias, norm.tensor.blocks.total(), 0.0F);
}

}  // namespace dlprim
