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
#include "primitives/nest/contraction.h"
#include "primitives/nest/formula.h"

namespace dlprim {

// Layouts of src and dst, or of their gradients, for the images of `shape`: (n, g, c, h, w) and
// (n, g, k, p, q).
struct ConvImages {
    ConvImages(const ConvProblem& problem, const ConvShape& shape);

    Layout src;
    Layout dst;
};

// u, v strides, d, e dilations, t, l padding in front: of rows and of pixels.
Constants geometry(const ConvShape& shape);

// Loops: g groups, n images, k and c blocks of channels, p rows, q pixels (one step spans the row
// where rows cannot be cut). A: src, B: packed weights (joined ones where needs_joined_weights()),
// C: dst. 8-bit problems have no padding.
Contraction forward_contraction(ConvProblem problem, const Epilogue& epilogue);
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
Layout window_weights_layout(const ConvProblem& problem);

// A pointwise convolution does not care where rows end: the same one on longer rows, at most
// `most_pixels` long where that is possible. Any other shape as it is.
ConvShape with_long_rows(const ConvShape& shape, std::int64_t most_pixels);

}  // namespace dlprim
