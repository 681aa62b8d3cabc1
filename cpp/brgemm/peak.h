// The machine's roofs, measured with loops that do nothing but the instruction in question. A
// fraction of peak means something only against a roof that was measured in the same run, so
// these live in the library and every benchmark calls them between its own measurements.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

// Operations (two per multiplication and addition) per second of the calling thread: independent
// multiply-adds on registers, one stretch of about `seconds`. For bf16 and int8 operands these are
// products of AMX tiles, or vdpbf16ps and vpdpbusd, where `isa` has them, else the float32 FMAs
// that stand in for them. Throws std::invalid_argument for scalar or an unusable ISA.
double fma_peak(DType operands, Isa isa, double seconds);

// Bytes per second that the calling thread loads from a buffer of `bytes`, read again and again
// for about `seconds`: cache or memory bandwidth depending on the size. The size is rounded to
// whole iterations of the loop, 2 KiB.
double read_bandwidth(Isa isa, std::int64_t bytes, double seconds);

}  // namespace dlprim
