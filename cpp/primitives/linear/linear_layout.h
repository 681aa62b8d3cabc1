// Where the elements of a linear layer's tensors are. Activations are blocked, [blocks][N][block]
// (the [Nb][Cb][bn][bc] of the literature with one block of samples), so that the rows of a kernel
// call are dense and no power of two apart, or plain, (N, channels), used in place. Weights are
// packed twice, because the two passes that multiply by them read them in different orders:
// [Kb][Cb][bc][bk] forward, [Cb][Kb][bk][bc] backward, the neighbours along the sum side by side
// (VNNI) in bfloat16 and int8. A ragged last block has whole storage; what is behind the last
// channel is zero in weights, and never read and never written in activations.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "jit/dtype.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// Bound of the kernel's leading dimensions.
inline constexpr std::int64_t kMostLinearChannels = std::int64_t{1} << 24;

struct LinearShape {
    std::int64_t N = 0;  // minibatch
    std::int64_t C = 0;  // input channels
    std::int64_t K = 0;  // output channels

    double flops() const {
        return 2.0 * static_cast<double>(N) * static_cast<double>(C) * static_cast<double>(K);
    }
};

// The operands of the passes: src, dst, diff_src, diff_dst, weights in the forward form and
// backward_weights, which stand behind them in one array of both, diff_weights in float32,
// narrow_diff_weights in bfloat16 where the passes are, bias, scale and int_bias. 8-bit layers,
// which have the forward pass alone, take signed weights. Letters: n samples, c and k channels.
std::vector<TensorForm> linear_forms(const LinearShape& shape, DType dtype, DType dst_dtype,
                                     Format format);

// The packed form alone of one of src, dst, diff_src, diff_dst, weights, backward_weights and
// diff_weights, of a type.
Layout linear_layout(const LinearShape& shape, Format format, std::string_view name, DType dtype);

// An activation tensor as the passes of an image see it: one image of N pixels.
Activations linear_activations(std::int64_t samples, std::int64_t channels, DType dtype);

// Elements from one sample and from one block of channels to the next.
struct SampleStrides {
    std::int64_t sample = 0;
    std::int64_t block = 0;
};

SampleStrides sample_strides(Format layout, std::int64_t samples, const ChannelBlocks& blocks);

// Samples of one tensor in either format, and side by side in pairs as a bfloat16 sum over the
// minibatch multiplies them (decision 8 has the same for pixels): each block of channels is
// [ceil(N / 2)][block][2], an odd last sample is paired with zeros. Letters: n and c.
Layout samples_layout(Format format, std::int64_t samples, std::int64_t channels, DType dtype);
Layout sample_pairs_layout(std::int64_t samples, std::int64_t channels, DType dtype);

// Elements of one form of the weights.
std::int64_t linear_weights_size(const LinearShape& shape, DType dtype);

}  // namespace dlprim
