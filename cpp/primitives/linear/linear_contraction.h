// The passes of a linear layer as descriptions for the one driver (contraction.h):
//   dst[n,k]          += src[n,c]      * weights[k,c]
//   diff_src[n,c]     += diff_dst[n,k] * weights[k,c]
//   diff_weights[k,c] += diff_dst[n,k] * src[n,c]
// The first two are one description with the roles of the channels exchanged. The third sums over
// samples with the input channels along the vectors, so that its rows are those of plain weights.
#pragma once

#include <cstdint>

#include "primitives/linear/linear_layout.h"
#include "primitives/nest/contraction.h"

namespace dlprim {

struct LinearProblem {
    LinearShape shape = {};
    DType dtype = DType::f32;   // of src
    DType c_type = DType::f32;  // of the result
    Format layout = Format::blocked;
};

// Loops: k blocks, n samples, c blocks that are summed. A: src, B: the forward form of the
// weights, C: dst.
Contraction linear_forward_contraction(const LinearProblem& problem, const Epilogue& epilogue);

// Loops: c blocks, n samples, k blocks that are summed. A: diff_dst, B: the backward form, C:
// diff_src.
Contraction linear_data_contraction(const LinearProblem& problem);

// No product: an epilogue of the residual, which stands where dst does, into C. Loops: k, n.
Contraction linear_epilogue_contraction(const LinearProblem& problem, Epilogue epilogue);

// Loops: c and k blocks, n blocks of samples that are summed. A: diff_dst, B: src, C: diff_weights
// in float32 or the type of the layer. In bfloat16 A and B are [blocks][ceil(N / 2)][block][2].
Contraction linear_weights_contraction(const LinearProblem& problem);

}  // namespace dlprim
