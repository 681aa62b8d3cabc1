// Volumes in scratch for a product that walks over all of their pixels at one distance: with the
// padding around them that the filter reads, in the order that the product reads fastest.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "primitives/reorder/reorder.h"
#include "primitives/volumes/volume_shape.h"

namespace dlprim {

// Elements from one to the next.
struct VolumeStrides {
    std::int64_t image = 0;
    std::int64_t group = 0;
    std::int64_t channel = 0;
    std::array<std::int64_t, kVolumeAxes> axes = {};

    friend bool operator==(const VolumeStrides&, const VolumeStrides&) = default;
};

using VolumeExtents = std::array<std::int64_t, kVolumeAxes>;

struct VolumeArray {
    std::int64_t images = 0;
    std::int64_t groups = 1;
    std::int64_t channels = 1;  // of a group
    VolumeExtents extents = {};

    std::int64_t pixels() const { return extents[0] * extents[1] * extents[2]; }
    std::int64_t elements() const { return images * groups * channels * pixels(); }
};

enum class VolumeOrder : std::uint8_t {
    plain,   // (images, groups, channels, pixels), as callers have them
    planes,  // (groups, channels, images, pixels)
    last,    // (images, pixels, groups, channels)
};

VolumeStrides strides_of(const VolumeArray& array, VolumeOrder order);

// What of an axis of one array is where on that of another one.
struct AxisPart {
    std::int64_t from = 0;
    std::int64_t to = 0;
    std::int64_t count = 0;
};

// A copy of a part of all volumes of an array. What else the result has is left alone, or zero.
class VolumeCopy {
public:
    struct Ends {
        VolumeArray what = {};  // images, groups and channels of both
        VolumeStrides from = {};
        VolumeStrides to = {};
        std::array<AxisPart, kVolumeAxes> parts = {};
        std::int64_t zeros = 0;  // pixels of each volume of the result, which are zero elsewhere
    };
    VolumeCopy(DType dtype, const Ends& ends);

    // First elements of the arrays, or of the copy where there is no array.
    void run(const char* from, char* to) const;
    // About how long it takes.
    double cycles() const { return cycles_; }

private:
    bool stays() const;  // rows stay rows
    void copy_rows(const char* from, char* to) const;

    DType dtype_;
    Ends ends_;
    std::optional<Reorder> reorder_ = {};  // none: rows stay rows
    std::int64_t from_ = 0;                // bytes in front of what is copied
    std::int64_t to_ = 0;
    double cycles_ = 0;
};

// Of plain volumes to `to`, which has what is read along the axes, with zeros around the volumes.
VolumeCopy padded_copy(DType dtype, const VolumeAxes& axes, const VolumeArray& to,
                       const VolumeStrides& strides);

}  // namespace dlprim
