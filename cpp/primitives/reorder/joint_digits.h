// The indices of a dimension as digits that both of two layouts have in common: where one has
// blocks of 64 and the other pairs, there are 64 / 2 and 2. Dimensions that lie one behind the
// other on both sides are one.
#pragma once

#include <array>
#include <cstdint>

#include "primitives/tensor/layout.h"

namespace dlprim {

// `size` indices, from the inside out; strides in elements.
struct JointDigit {
    std::int64_t size = 1;
    std::int64_t from = 0;
    std::int64_t to = 0;
};

struct JointDimension {
    static constexpr int kDigits = 4;

    std::int64_t extent = 1;
    std::int64_t stored = 1;                      // in `to`, padding included
    std::array<JointDigit, kDigits> digits = {};  // the outermost one's size is what is stored
    int count = 0;

    std::int64_t below(int digit) const;  // indices of one step of a digit
    bool is_dense() const;                // exactly its digits, no padding
};

struct JointDimensions {
    static constexpr int kMost = 10;

    std::array<JointDimension, kMost> all = {};
    int count = 0;
    bool fits = true;  // else the layouts have no digits in common, or too many
};

JointDimensions joint_dimensions(const Layout& from, const Layout& to);

// Levels of all dimensions that have more than one index.
std::int64_t levels_of(const Layout& layout);

}  // namespace dlprim
