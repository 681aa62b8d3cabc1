// The machine's roofs, measured with loops that do nothing but the instruction in question. A
// fraction of peak means something only against a roof that was measured in the same run, so
// these live in the library and every benchmark calls them between its own measurements.
#pragma once

#include <cstdint>

#include "brgemm/isa.h"

namespace dlprim {

// float32 operations per second of the calling thread: independent FMAs on registers, one stretch
// of about `seconds`. Throws std::invalid_argument for scalar or an unusable ISA.
double fma_peak(Isa isa, double seconds);

// Bytes per second that the calling thread loads from a buffer of `bytes`, read again and again
// for about `seconds`: cache or memory bandwidth depending on the size. The size is rounded to
// whole iterations of the loop, 2 KiB.
double read_bandwidth(Isa isa, std::int64_t bytes, double seconds);

}  // namespace dlprim
