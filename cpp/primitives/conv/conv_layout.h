// Where the elements of a convolution's tensors are. Activations are either blocked,
// [N][blocks][H][W][block], so that a kernel's rows are dense and short of any power of two that
// caches and TLBs dislike, or channels-last, [N][H][W][channels], used in place. Weights are
// [Kb][Cb][R][S][bc][bk] for both, with neighbours along bc side by side (VNNI) in bfloat16 and in
// 8 bits, and [blocks][R][S][block] for a depthwise convolution. 8-bit blocks are whole words, of
// which the last channels may be anything where weights are zero; those of the weights of
// channels-last images are all channels of a group, behind which the next ones follow. Blocks never
// cross from one group of channels into the next. The last block of a group may be ragged: its
// storage is whole, what is behind the last channel is never read and, in activations, never
// written; packing fills it with zeros.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "jit/dtype.h"
#include "primitives/conv/conv_shape.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

struct ConvProblem {
    ConvShape shape = {};  // validated
    DType dtype = DType::f32;
    Format layout = Format::blocked;
    DType dst_dtype = DType::f32;  // where operands are of 8 bits; else dst is of their type

    DType result() const { return is_int8(dtype) ? dst_dtype : dtype; }
};

// Blocks of C and of K of a validated shape, in a tensor of that type. The channels of a depthwise
// convolution count as one group.
ChannelBlocks src_blocks(const ConvShape& shape, DType dtype = DType::f32);
ChannelBlocks dst_blocks(const ConvShape& shape, DType dtype = DType::f32);

// Of C in the weights, which a sum takes one after the other.
ChannelBlocks depth_blocks(const ConvProblem& problem);

// A tensor of (images, channels, rows, columns) whose channels are in groups: the indices are those
// of images, groups, channels of a group, rows and columns.
TensorForm activation_form(const std::string& name, const std::array<Indices, 5>& it,
                           const ChannelBlocks& blocks, DType dtype, Format format);

// Elements from one image, group, block of channels, row and pixel to the next.
struct ActivationStrides {
    std::int64_t image = 0;
    std::int64_t group = 0;
    std::int64_t block = 0;
    std::int64_t row = 0;
    std::int64_t pixel = 0;
};

ActivationStrides activation_strides(Format layout, const ChannelBlocks& blocks,
                                     std::int64_t height, std::int64_t width);

// The operands of the passes: src, dst, diff_src, diff_dst, residual, weights, diff_weights in
// float32, narrow_diff_weights in bfloat16 where the passes are, bias and relu_mask (which has no
// plain form). Of 8-bit ones, whose weights are signed, no diff_weights, but scale and int_bias, K
// values as the bias. Letters: g groups, n images, c and k channels of a group, h, w, p, q pixels,
// r, s taps; the channels of a depthwise convolution are one group and its weights have no c.
// float32 weights become packed ones of any type. Weights that Winograd transformed are another's
// (winograd_choice.h).
std::vector<TensorForm> conv_forms(const ConvProblem& problem);

// One of these alone.
enum class ConvOperand : std::uint8_t { src, dst, weights, diff_weights };
TensorForm conv_form(const ConvProblem& problem, ConvOperand operand);

// The packed weights, and those with the roles of C and K exchanged, as the backward-data pass
// multiplies them: [Cb][Kb][R][S][bk][bc], in VNNI form for bfloat16 (block order: groups stay
// outermost). The latter not for depthwise shapes.
Layout weights_layout(const ConvProblem& problem);
Layout transposed_weights_layout(const ConvShape& shape, DType dtype);

// Elements of the former, padding included. Those of f32 are those of diff_weights in any dtype.
std::int64_t packed_weights_size(const ConvShape& shape, DType dtype);

// Zero where there are no channels: sums may have left anything. Not for depthwise shapes.
void clear_diff_weights_padding(const ConvShape& shape, DType dtype, void* packed);

// Weights of a bfloat16 filter with an odd, small number of input channels. Its taps and channels
// are one long row of src, 21 elements for 7x7 on three channels, that begins at any of them; the
// packed weights pair the channels of each tap on their own, so every third multiplication would be
// with nothing. Here pairs run on across taps, in two copies: beginning with the first element and
// with the second, [Kb][2][R][ceil(S * C / 2)][bk][2], so that a piece of a row finds its pairs
// whatever it begins with.
bool needs_joined_weights(const ConvProblem& problem);
// (g, k, c, r, s); taps that begin with an odd element are in the second copy.
Layout joined_weights_layout(const ConvProblem& problem);
std::int64_t joined_weights_bytes(const ConvProblem& problem);
void join_weights(const ConvProblem& problem, const void* packed, void* joined);

}  // namespace dlprim
