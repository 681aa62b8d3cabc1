#include "primitives/reorder/joint_digits.h"

#include <algorithm>
#include <limits>

namespace dlprim {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

// The levels of one side from the inside out, without those of one index and with neighbours that
// are contiguous as one.
class Levels {
public:
    explicit Levels(const LayoutDimension& dimension)
        : level_(dimension.levels.rbegin()), end_(dimension.levels.rend()) {
        next();
    }

    std::int64_t left() const { return left_; }
    std::int64_t stride() const { return stride_; }

    // Goes on behind `size` indices, which divide what is left.
    void take(std::int64_t size) {
        if (size == left_) {
            next();
        } else {
            stride_ *= size;
            if (left_ != kUnbounded) left_ /= size;
        }
    }

private:
    using Level = std::vector<DimensionLevel>::const_reverse_iterator;

    void skip_ones() {
        while (level_ != end_ && level_->extent == 1) ++level_;
    }

    void next() {
        skip_ones();
        left_ = kUnbounded;
        if (level_ == end_) return;  // nothing has an index there
        stride_ = level_->stride;
        left_ = (level_++)->extent;
        skip_ones();
        while (level_ != end_ && level_->stride == left_ * stride_) {
            left_ *= (level_++)->extent;
            skip_ones();
        }
        if (level_ == end_) left_ = kUnbounded;
    }

    Level level_;
    Level end_;
    std::int64_t left_ = kUnbounded;
    std::int64_t stride_ = 0;
};

// False where a digit of one side is a part of two of the other.
bool refine(const LayoutDimension& from, const LayoutDimension& to, JointDimension& made) {
    made.extent = to.extent;
    made.stored = to.padded();
    Levels left(from), right(to);
    std::int64_t below = 1;
    while (below < made.stored) {
        if (made.count == JointDimension::kDigits) return false;
        JointDigit& digit = made.digits[static_cast<std::size_t>(made.count++)];
        digit = {.from = left.stride(), .to = right.stride()};
        const std::int64_t size = std::min(left.left(), right.left());
        if (size == kUnbounded || below * size >= made.stored) {
            digit.size = (made.stored + below - 1) / below;
            return made.stored % below == 0 || made.stored == made.extent;
        }
        const std::int64_t larger = std::max(left.left(), right.left());
        if (larger != kUnbounded && larger % size != 0) return false;
        digit.size = size;
        below *= size;
        left.take(size);
        right.take(size);
    }
    return true;
}

bool is_inside(const JointDimension& inner, const JointDimension& outer) {
    if (inner.count != 1 || outer.count != 1 || inner.extent != inner.stored) return false;
    const JointDigit &in = inner.digits[0], &out = outer.digits[0];
    return out.from == inner.extent * in.from && out.to == inner.extent * in.to;
}

// Makes one of two dimensions where it can.
bool fuse_any(JointDimensions& it) {
    for (int i = 0; i < it.count; ++i) {
        for (int j = 0; j < it.count; ++j) {
            JointDimension& outer = it.all[static_cast<std::size_t>(i)];
            JointDimension& inner = it.all[static_cast<std::size_t>(j)];
            if (i == j || !is_inside(inner, outer)) continue;
            inner.stored = inner.extent * outer.stored;
            inner.extent *= outer.extent;
            inner.digits[0].size = inner.stored;
            outer = it.all[static_cast<std::size_t>(--it.count)];
            return true;
        }
    }
    return false;
}

}  // namespace

std::int64_t JointDimension::below(int digit) const {
    std::int64_t indices = 1;
    for (int i = 0; i < digit; ++i) indices *= digits[static_cast<std::size_t>(i)].size;
    return indices;
}

bool JointDimension::is_dense() const { return extent == stored && below(count) == stored; }

JointDimensions joint_dimensions(const Layout& from, const Layout& to) {
    JointDimensions made;
    for (const LayoutDimension& dimension : to.dimensions) {
        if (dimension.extent == 0) return {.fits = false};  // nothing but padding, if that
        if (dimension.padded() == 1) continue;
        if (made.count == JointDimensions::kMost) return {.fits = false};
        JointDimension& next = made.all[static_cast<std::size_t>(made.count++)];
        if (!refine(from.dimension(dimension.letter), dimension, next)) return {.fits = false};
    }
    while (fuse_any(made)) {
    }
    return made;
}

std::int64_t levels_of(const Layout& layout) {
    std::int64_t count = 0;
    for (const LayoutDimension& it : layout.dimensions) {
        for (const DimensionLevel& level : it.levels) count += level.extent > 1 ? 1 : 0;
    }
    return count;
}

}  // namespace dlprim
