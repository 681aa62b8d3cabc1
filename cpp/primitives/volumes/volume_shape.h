// A convolution along three axes as numbers: what its maker fixed, and what follows.
#pragma once

#include <array>
#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

inline constexpr std::size_t kVolumeAxes = 3;  // depth, height, width

struct VolumeAxis {
    std::int64_t extent = 1;  // of src
    std::int64_t taps = 1;
    std::int64_t step = 1;    // stride
    std::int64_t spread = 1;  // dilation
    std::int64_t before = 0;  // padding in front
    std::int64_t results = 1;

    // What is read, from the first tap of the first result on.
    std::int64_t length() const { return (results - 1) * step + (taps - 1) * spread + 1; }
    // Nothing outside of src is read.
    bool is_inside() const { return before <= 0 && length() - before <= extent; }
    // Results read what is as far apart as they are.
    bool is_dense() const { return step == 1 || results == 1; }
};

using VolumeAxes = std::array<VolumeAxis, kVolumeAxes>;

struct VolumeShape {
    std::int64_t N = 0;
    std::int64_t C = 1;  // of all groups, as K is
    std::int64_t K = 1;
    std::int64_t groups = 1;
    VolumeAxes axes = {};

    std::int64_t group_C() const { return C / groups; }
    std::int64_t group_K() const { return K / groups; }
    std::int64_t elements() const;  // of the volumes that are read, in a channel
    std::int64_t results() const;
    std::int64_t taps() const;
    double flops() const;
};

inline std::int64_t VolumeShape::elements() const {
    return axes[0].extent * axes[1].extent * axes[2].extent;
}
inline std::int64_t VolumeShape::results() const {
    return axes[0].results * axes[1].results * axes[2].results;
}
inline std::int64_t VolumeShape::taps() const { return axes[0].taps * axes[1].taps * axes[2].taps; }
inline double VolumeShape::flops() const {
    return 2 * static_cast<double>(N * K * results()) * static_cast<double>(group_C() * taps());
}

}  // namespace dlprim
