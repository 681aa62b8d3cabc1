// C = activation(A * B + bias) for matrices of any size, cut into blocks that the caches hold and
// dealt to threads: what the three passes of a linear layer share, as a description for the one
// driver (contraction.h). The blocks depend on the problem alone, so the result is the same bits
// for any number of threads.
#pragma once

#include <cstdint>

#include "brgemm/spec.h"

namespace dlprim {

// Columns of one block of C, and of one panel of a packed B.
inline constexpr std::int64_t kPanelColumns = 64;

struct MatrixProduct {
    std::int64_t m = 0;
    std::int64_t n = 0;
    std::int64_t k = 0;  // 0 is an empty sum
    const float* a = nullptr;
    std::int64_t lda = 0;
    bool trans_a = false;  // A stored [k][m]
    const float* b = nullptr;
    std::int64_t ldb = 0;
    // Elements from one block of kPanelColumns columns of B to the next: kPanelColumns where B is
    // an ordinary matrix.
    std::int64_t b_panel_stride = kPanelColumns;
    float* c = nullptr;
    std::int64_t ldc = 0;
    const float* bias = nullptr;  // n values, or null
    Activation activation = Activation::none;
};

// Does nothing when m or n is 0.
void multiply(const MatrixProduct& product);

}  // namespace dlprim
