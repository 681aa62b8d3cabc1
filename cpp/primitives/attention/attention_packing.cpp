#include "primitives/attention/attention_packing.h"

#include <cstring>

#include "primitives/reorder/serial_moves.h"

namespace dlprim {

void pack_across(const HeadRows& rows, char* dst, std::int64_t dst_row) {
    const std::int64_t size = size_of(rows.dtype);
    transpose({.src = rows.first,
               .dst = dst,
               .src_rows = {.stride = rows.step * size},
               .dst_rows = {.stride = dst_row * kFloat},
               .src_bytes = rows.size * size,
               .dst_bytes = rows.count * kFloat,
               .goes_across = true});
}

void pack_along(const HeadRows& rows, char* dst, std::int64_t dst_row) {
    const std::int64_t size = size_of(rows.dtype);
    if (rows.dtype == DType::bf16) {
        group({.from = rows.dtype,
               .to = rows.dtype,
               .src = rows.first,
               .src_row = rows.step * size,
               .rows = rows.count,
               .columns = rows.size,
               .dst = dst,
               .dst_row = dst_row * kFloat});
        return;
    }
    for (std::int64_t i = 0; i < rows.count; ++i) {
        std::memcpy(dst + i * dst_row * kFloat, rows.first + i * rows.step * size,
                    static_cast<std::size_t>(rows.size * size));
    }
}

void clear(DType dtype, const HeadsExtents& extents, const AttentionStrides& strides, void* first) {
    for (std::int64_t i = 0; i < extents.batch * extents.heads * extents.rows; ++i) {
        const std::int64_t head = i / extents.rows;
        const std::int64_t element = head / extents.heads * strides.batch +
                                     head % extents.heads * strides.head +
                                     i % extents.rows * strides.row;
        std::memset(static_cast<char*>(first) + element * size_of(dtype), 0,
                    static_cast<std::size_t>(extents.size * size_of(dtype)));
    }
}

}  // namespace dlprim
