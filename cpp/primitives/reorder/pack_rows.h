// The vector code behind pack.h, compiled once per vector width as per_isa.h describes.
#pragma once

#include <cstdint>

#include "jit/isa.h"
#include "primitives/reorder/pack.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Packs what depends on a range of rows of the storage of the first matrix. The types are valid.
using PackFunction = void (*)(const Packing& packing, Range rows);

struct RowFunctions {
    PackFunction pack;  // plain storage; the range begins at a multiple of the group
    void (*round)(const float* src, std::uint16_t* dst, std::int64_t count);
    void (*widen)(const std::uint16_t* src, float* dst, std::int64_t count);
};

// For an ISA level that this machine can run.
RowFunctions row_functions(Isa isa);

}  // namespace dlprim
