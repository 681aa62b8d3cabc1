// Transposition of matrices of two- and four-byte elements, which is what separates plain storage
// from blocked: serial pieces for tasks that have been cut to fit a cache. The vector code follows
// per_isa.h: Highway, compiled per vector width, chosen by the library's own ISA level.
#pragma once

#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

// Lengths and distances count elements; src and dst must not overlap.
struct Transposition {
    const void* src = nullptr;
    std::int64_t ld_src = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    void* dst = nullptr;
    std::int64_t ld_dst = 0;
};

// dst[column][row] = src[row][column], for f32 and bf16.
void transpose(DType dtype, const Transposition& matrix);

// The same from packed form to packed form (pack.h): [ceil(rows / g)][columns][g] becomes
// [ceil(columns / g)][rows][g] with g = elements_per_word(dtype); ld_src and ld_dst count groups.
// A group that is not full is filled up with zeros in dst and its rest is not read in src.
void transpose_packed(DType dtype, const Transposition& matrix);

}  // namespace dlprim
