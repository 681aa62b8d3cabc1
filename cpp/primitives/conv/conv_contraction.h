// The passes of a convolution as descriptions for the one driver (contraction.h). Forward and
// backward-data are the same description with the roles of the channels exchanged and other taps:
//   dst[n,p,q,k]      += src[n, p*u + r, q*u + s, c]      * weights[k,c,r,s]
//   diff_src[n,h,w,c] += diff_dst[n, (h - r)/u, (w - s)/u, k] * weights[k,c,r,s]
// A row of the result (or a run of pixels, where the filter is 1x1) is the m of the kernel, a
// block of result channels its n; the taps and the other channels are the batch. Backward-weights
// multiplies transposed rows of src with rows of diff_dst and sums over rows and images.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_layout.h"
#include "primitives/nest/affine_axis.h"
#include "primitives/nest/contraction.h"

namespace dlprim {

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

// Loops: g groups, n images, k and c blocks of channels, p rows, q pixels (one step spans the row
// where rows cannot be cut). A: src, B: packed weights (joined ones
// where needs_joined_weights()), C: dst.
Contraction forward_contraction(const ConvProblem& problem, const Epilogue& epilogue);
// No product at all: only the activation of what stands in C, and its mask, over all channels.
// Loops: n, k, p. For what cannot be fused into the pass: a depthwise convolution is no kernel
// call, and groups whose channels share a byte of the mask cannot write it one after the other. To
// be run with `accumulate`.
Contraction activation_contraction(const ConvProblem& problem, const Epilogue& epilogue);
// Loops as forward. A: diff_dst, B: transposed weights, C: diff_src.
Contraction backward_data_contraction(const ConvProblem& problem);

// The same for a pointwise convolution whose stride divides the image: only one pixel of each cell
// of stride_h x stride_w has a gradient, and the kernel writes the zeros of the others beside it. C
// is aligned to the cache line and exceeds the caches. The same loops with p over rows of diff_dst.
bool has_cells(const ConvProblem& problem);
Contraction cell_data_contraction(const ConvProblem& problem);

// Backward-data for a few input channels, too few to fill a vector: a pixel of diff_dst adds to the
// window of S * C neighbours in diff_src that its filter row covers, which is one long row of C.
// Windows overlap, so pixels take turns: those whose windows are apart are the rows of one call.
// Loops: n, c, k, p, q. B: window weights, [Kb][R][bk][S * C], in VNNI form for bfloat16.
bool prefers_windows(const ConvProblem& problem);
Contraction window_data_contraction(const ConvProblem& problem);
std::int64_t window_weights_bytes(const ConvProblem& problem);
void make_window_weights(const ConvProblem& problem, const void* packed, void* window_weights);

// Images in the form that a bfloat16 backward-weights pass multiplies: pixels of a row in pairs.
// Rows of src stand there once for every way in which the taps pair them, or, for a few channels,
// once as windows of S * C elements. An image whose pairs exceed a share of the cache, or what
// conv_weights_scratch.h leaves for them, falls into bands of rows, which count as images of their
// own.
struct PairedImages {
    ConvShape whole = {};        // of an image, with the rows that the pass walks
    ConvShape shape = {};        // of a band; N counts bands
    std::int64_t bands = 1;      // of an image
    std::int64_t row_step = 0;   // rows of src from one band to the next
    std::int64_t first_row = 0;  // of src in the first band, below 0 in the padding
    bool windows = false;
    std::int64_t columns_src = 0;  // of a pair: channels of a block, or of a window
    std::int64_t pairs_src = 0;    // in a row
    std::int64_t pairs_dst = 0;
    std::vector<std::int64_t> first = {};  // of each form: the pixel of src it begins with
    std::int64_t src_bytes = 0;            // of one band
    std::int64_t dst_bytes = 0;
};

PairedImages paired_images(const ConvProblem& problem);

// Which sums a backward-weights contraction is for: of so many images (bands where there are
// pairs), and of all weights or of one slice of them (conv_weights_scratch.h). A and B are those of
// the first index of the slice.
struct WeightsPart {
    static constexpr int kAll = -1;

    std::int64_t images = 0;
    int slice = kAll;
};

// Loops: g, k, c, t taps, n images, p rows. A: src, B: diff_dst, C: diff_weights in float32; may be
// asked to accumulate. Where the pass gathers_pixels(), A is dense images of them; in bfloat16 A
// and B are packed bands, [band][block][form][row][pairs][bc][2] and
// [band][block][row][pairs][bk][2].
Contraction weights_contraction(const ConvProblem& problem, const WeightsPart& part);

// Whether all taps of a filter row are multiplied at once, as windows of S * C neighbours.
bool has_windows(const ConvShape& shape);

// Whether backward-weights copies the pixels that a strided pointwise filter reads into dense,
// blocked images first (conv_gather.h).
bool gathers_pixels(const ConvProblem& problem);

// The shape whose rows the backward-weights pass walks, after pixels are gathered.
ConvShape weights_pass_shape(const ConvProblem& problem);

// A pointwise convolution does not care where rows end: the same one on longer rows, at most
// `most_pixels` long where that is possible. Any other shape as it is.
ConvShape with_long_rows(const ConvShape& shape, std::int64_t most_pixels);

}  // namespace dlprim
