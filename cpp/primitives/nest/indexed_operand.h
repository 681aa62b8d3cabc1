// An operand of a statement with its layout: how far its elements are from each other along an
// index. A place is one index, or a sum of two (affine_axis.h), whose first index is the position
// and whose second one is the shift.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "primitives/nest/affine_axis.h"
#include "primitives/nest/formula.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// A place that is a sum of two indices.
struct SumPlace {
    char position = 0;
    char shift = 0;
    std::int64_t factor = 1;
    std::int64_t shift_factor = 1;
    std::int64_t constant = 0;
    std::int64_t extent = 0;
    std::int64_t stride = 0;  // elements
};

class IndexedOperand {
public:
    IndexedOperand() = default;  // that is not there: nothing moves along any index
    // Throws std::invalid_argument unless there is a place for every dimension and each is none or
    // one index, or a sum of two with positive factors along a dimension of one level.
    IndexedOperand(const Access& access, const Layout& layout);

    // 0 where the index has no place of its own.
    std::int64_t extent(char index) const;
    bool has(char index) const { return find(index) != nullptr; }
    // Of the blocks that a dimension is cut into, 1 where it is not.
    std::int64_t block(char index) const;
    // Elements from 0 to `value` of an index.
    std::int64_t offset(char index, std::int64_t value) const;
    // From one block of `unit` to the next.
    std::int64_t block_stride(char index, std::int64_t unit) const;
    // From one index to the next within a block; of neighbours in words of so many elements, in
    // words.
    std::int64_t step(char index, std::int64_t word = 1) const;

    const std::vector<SumPlace>& sums() const { return sums_; }
    DType dtype() const { return dtype_; }
    // Of the elements that exist: padding is never touched.
    double bytes() const;

private:
    struct Place {
        char index = 0;
        std::int64_t factor = 1;
        const LayoutDimension* dimension = nullptr;
    };
    const Place* find(char index) const;

    DType dtype_ = DType::f32;
    const Layout* layout_ = nullptr;
    std::vector<Place> places_;
    std::vector<SumPlace> sums_;
};

}  // namespace dlprim
