// 8-bit products on CPUs that do not multiply bytes. The kernel can widen bytes as it reads them,
// and does so where operands are met a few times. Where each is met by many, as the weights and
// images of a convolution are, words of 16 bits are made of both operands first: the product then
// takes two instructions for 16 (AVX2) or 32 multiplications and nothing else.
#pragma once

#include <cstdint>

#include "primitives/nest/contraction.h"

namespace dlprim {

class WidenedProduct {
public:
    WidenedProduct() = default;  // of floats: nothing is widened
    // Of operands of so many bytes.
    WidenedProduct(const Contraction& product, std::int64_t a_bytes, std::int64_t b_bytes);

    // The same product, of words where that is faster. B lies in whole rows of ldb columns.
    Contraction of(Contraction product) const;

    std::int64_t scratch_bytes() const;

    // Puts words into `scratch`, which has scratch_bytes(), and in the place of A and B.
    void widen(ContractionOperands& operands, char* scratch) const;

private:
    bool pays_ = false;
    DType a_type_ = DType::f32;
    std::int64_t a_bytes_ = 0;
    std::int64_t b_bytes_ = 0;
    std::int64_t columns_ = 0;
};

}  // namespace dlprim
