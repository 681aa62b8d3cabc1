// Rows of a head as products take them where they are the second operand: across, so that a row of
// them becomes a column, or along, as they lie. Rows of heads are far apart in memory, further than
// the first cache bears; packed ones follow each other. Of bfloat16 both have words of two
// neighbours along the dimension that is summed.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "primitives/attention/attention_spec.h"

namespace dlprim {

struct HeadRows {
    DType dtype = DType::f32;
    const char* first = nullptr;
    std::int64_t step = 0;  // elements from row to row
    std::int64_t count = 0;
    std::int64_t size = 0;  // elements of a row
};

// Both write words, `dst_row` of them from row to row.
void pack_across(const HeadRows& rows, char* dst, std::int64_t dst_row);
void pack_along(const HeadRows& rows, char* dst, std::int64_t dst_row);

// Zeros in all rows of an array of heads.
struct HeadsExtents {
    std::int64_t batch = 0;
    std::int64_t heads = 0;
    std::int64_t rows = 0;
    std::int64_t size = 0;
};

void clear(DType dtype, const HeadsExtents& extents, const AttentionStrides& strides, void* first);

}  // namespace dlprim
