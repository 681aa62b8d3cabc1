// The one structure that generated row programs read: plain data in a fixed order, from which the
// emitter takes every offset with offsetof. Programs know no shape: rows, columns and strides are
// numbers of a call, so that a program serves every extent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "rows/row_spec.h"

namespace dlprim {

// Floats that a row of scratch is longer than the row, rounded down to a cache line.
inline constexpr int kRowScratchSlack = 16;

struct RowArgs {
    struct Operand {
        // No values: programs look at no operands but those that they name, and clearing the others
        // takes as long as a short row.
        Operand() {}
        Operand(void* first, std::int64_t to_next) : data(first), stride(to_next) {}

        void* data;
        // Bytes from row to row; elements of a row are neighbours. Columns and scalars have none.
        std::int64_t stride;
    };

    // A row of what is listed begins so many elements from `data`, has a number, and another one
    // among `factors`.
    struct Listed {
        std::int64_t element = 0;
        float number = 0;
        std::int32_t factor = 0;
    };

    // One after the other, and how many of them are folded into each row of the results.
    const Listed* list = nullptr;
    const float* factors = nullptr;
    const std::int64_t* counts = nullptr;
    // Instead of such a list, of programs that have one of places: integers one after the other,
    // the first, the end of what may be read of them, how many rows there are, and the elements
    // from one to the next. A place of none of them, which somebody has written there meanwhile, is
    // taken for the first row.
    const void* places = nullptr;
    const void* places_end = nullptr;
    std::int64_t extent = 0;
    std::int64_t distance = 0;

    std::int64_t rows = 0;
    std::int64_t columns = 0;
    float* scratch = nullptr;  // RowKernel::scratch_floats(columns), aligned to the cache line
    std::array<Operand, kMostRowOperands> operands{};
};

static_assert(std::is_standard_layout_v<RowArgs>);

}  // namespace dlprim
