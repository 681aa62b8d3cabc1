// Dropout whose mask is a function of seed, offset and the element's place, so that the backward
// pass makes it again instead of reading it: a counter-based generator, Philox 4x32-10 (Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC11, section 3).
#pragma once

#include <array>
#include <cstdint>

#include "jit/dtype.h"

namespace dlprim {

// Ten rounds; the reference for the vector code and for known answers.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key);

// Elements whose random words come from neighbouring counters: element i takes word i % 64 / 16 of
// the counter (i / 64 * 16 + i % 16, offset), each half 64 bits, low word first; the key is the
// seed.
inline constexpr std::int64_t kDropoutGroup = 64;

struct Dropout {
    std::uint64_t seed = 0;
    std::uint64_t offset = 0;  // names one of 2^64 masks of a seed
    // An element is kept where its word >= threshold: with probability 1 - threshold / 2^32.
    // 2^32 drops everything.
    std::uint64_t threshold = 0;
    float scale = 1;  // of what is kept
};

// out = scale * src where kept, else 0. f32 or bf16; out may be src.
void run_dropout(const Dropout& dropout, DType dtype, std::int64_t count, const void* src,
                 void* out);

}  // namespace dlprim
