// Filters between plain storage, [k][c][tap], and packed matrices of words, one for each tap,
// [tap][c / g][k] with g elements side by side in a word. Serial pieces of 16 filters or so, read
// in as many long streams and written in whole cache lines, or the reverse. The vector code follows
// per_isa.h: Highway, compiled per vector width, chosen by the library's own ISA level.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

struct FilterStrip {
    std::int64_t filters = 0;
    std::int64_t channels = 0;
    std::int64_t taps = 1;
    void* plain = nullptr;
    std::int64_t ld_plain = 0;  // elements from one filter to the next
    void* packed = nullptr;
    std::int64_t ld_channels = 0;  // words from one group of channels to the next
    std::int64_t ld_tap = 0;       // words
};

// Packs f32 as it is, or f32 or bf16 in pairs of channels; the last pair is filled up with zeros.
using PackFilters = void (*)(const FilterStrip& strip);
PackFilters pack_filters_function(Isa isa, DType from, DType to);

// Unpacks f32.
using UnpackFilters = void (*)(const FilterStrip& strip);
UnpackFilters unpack_filters_function(Isa isa);

}  // namespace dlprim
