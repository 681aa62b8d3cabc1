// Volumes and a filter that slides over them: the forward pass of a convolution, and its gradient
// by the volumes, which is one for every remainder of a stride. It is a product of matrices by any
// of its ways: on the volumes as they lie or on a copy with padding around it, with all pixels as
// one index or with one for each axis, with channels in front or behind. What each is expected to
// take decides, once.
#pragma once

#include <cstdint>
#include <memory>

#include "primitives/volumes/volume_grid.h"
#include "primitives/volumes/volume_shape.h"

namespace dlprim {

struct Correlation {
    DType dtype = DType::f32;
    VolumeShape shape = {};
    // Of what is written, whose rows and planes may be apart; what is read is plain, and so are the
    // weights, (K, C/groups, taps).
    VolumeStrides to = {};
    bool bias = false;
};

class CorrelationRun {
public:
    explicit CorrelationRun(const Correlation& it);
    CorrelationRun(const CorrelationRun&) = delete;
    CorrelationRun& operator=(const CorrelationRun&) = delete;
    ~CorrelationRun();

    // First elements of the arrays. The same bits for any number of threads.
    void run(const char* src, const void* weights, const float* bias, char* dst) const;
    double cycles() const;  // that it is expected to take
    // Bytes of all copies.
    std::int64_t scratch_bytes() const;

private:
    struct Made;

    std::unique_ptr<const Made> made_;
};

}  // namespace dlprim
