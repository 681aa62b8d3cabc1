// Softmax cross-entropy of integer targets: the loss and its gradient from one reading of the
// logits. A row is in the caches when it is read again, so memory sees one read and one write.
//
// With weights w of the classes, smoothing e and K classes the loss of a row of target t is
//
//     -(1 - e) w[t] log p[t] - e / K sum_k w[k] log p[k]
//
// and the mean is that over rows by w[t]: the sum of losses over the sum of w[t].
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

struct SoftmaxCrossEntropy {
    std::int64_t rows = 0;
    std::int64_t classes = 0;
    DType dtype = DType::f32;  // of logits and gradient, f32 or bf16
    const void* logits = nullptr;
    const std::int64_t* targets = nullptr;  // in [0, classes), or ignored
    std::int64_t ignored = -100;            // rows of this target count nowhere
    void* diff_logits = nullptr;            // null: the loss alone. May be logits
    const float* weights = nullptr;         // of the classes; null: all are 1
    float smoothing = 0;                    // e in [0, 1]
    bool averages = true;                   // else the sum, of which the gradient is then
    float* losses = nullptr;                // of rows, if they are asked for; 0 where ignored
};

// The mean or sum over the rows that count; a mean of none is NaN. Rows are summed in float64.
double softmax_cross_entropy(const SoftmaxCrossEntropy& problem);

}  // namespace dlprim
