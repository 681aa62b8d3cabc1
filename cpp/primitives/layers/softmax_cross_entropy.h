// Softmax cross-entropy of integer targets: the loss and its gradient from one reading of the
// logits. A row is in the caches when it is read again, so memory sees one read and one write.
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
    void* diff_logits = nullptr;            // of the mean; null: the loss alone. May be logits
};

// The mean over the rows that count, NaN where there are none. Rows are summed in float64.
double softmax_cross_entropy(const SoftmaxCrossEntropy& problem);

}  // namespace dlprim
