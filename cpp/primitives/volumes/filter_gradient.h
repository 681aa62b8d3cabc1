// The gradient of a convolution of volumes by its filters, which sums over all pixels: a product of
// matrices like the other passes (correlation.h), on copies in the order that suits it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "primitives/volumes/volume_grid.h"
#include "primitives/volumes/volume_shape.h"

namespace dlprim {

class FilterGradient {
public:
    FilterGradient(DType dtype, const VolumeShape& shape);
    FilterGradient(const FilterGradient&) = delete;
    FilterGradient& operator=(const FilterGradient&) = delete;
    ~FilterGradient();

    // (K, C/groups, taps) of float32 from plain arrays. The same bits for any number of threads.
    void run(const char* diff_dst, const char* src, float* diff_weights) const;

    double cycles() const;  // that it is expected to take

private:
    struct Made;

    DType dtype_;
    VolumeShape shape_;
    std::unique_ptr<const Made> made_;
    // By pixels that are read apart, for infinities and NaN: made by the first call that meets one.
    mutable std::once_flag apart_made_;
    mutable std::unique_ptr<const Made> apart_ = nullptr;
};

}  // namespace dlprim
