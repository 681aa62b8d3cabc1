// A product of matrices that is a convolution of images by 3x3 filters, by Winograd's algorithm:
// fewer multiplications than the product has. Only how its operands lie says that it is one, so a
// formula of a convolution is as fast as the layer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "primitives/mapping/strided_product.h"

namespace dlprim {

class PlainConv;

class WinogradProduct {
public:
    // None where it is no such convolution of dense float32 images, channels first or last, by
    // filters (K, C, 3, 3), or where the direct sum is more accurate or expected to be as fast.
    static std::optional<WinogradProduct> of(const StridedProduct& product);

    // With what it copies, where the direct sum takes so many.
    double cycles(double direct) const { return of_direct_ * direct + copied_; }

    // First elements of the arrays, as the statement has them; the bias or null. The same bits for
    // any number of threads.
    void run(const void* a, const void* b, const void* bias, void* c) const;

private:
    WinogradProduct() = default;

    std::shared_ptr<const PlainConv> conv_;
    StridedProduct product_ = {};  // A is the images
    bool is_exchanged_ = false;
    double of_direct_ = 1;
    double copied_ = 0;
};

}  // namespace dlprim
