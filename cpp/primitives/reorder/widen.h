// Bytes as words of 16 bits. Where no instruction multiplies bytes a product takes words, which it
// would make of every byte again for each row, or column, that meets it; a copy in words is made
// once for all of them.
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

// Elements of `from`, u8 or s8, in the order in which they stand.
void widen_bytes(DType from, const void* src, std::int64_t count, std::int16_t* dst);

// int8 packed in fours, [rows][columns][4], to pairs, [rows][2][columns][2].
void widen_packed(const std::int8_t* src, std::int64_t rows, std::int64_t columns,
                  std::int16_t* dst);

}  // namespace dlprim
