// The machine's roofs, measured with loops that do nothing but the instruction in question. A
// fraction of peak means something only against a roof that was measured in the same run, so
// these live in the library and every benchmark calls them between its own measurements.
#pragma once

#include <cstdint>

#include "brgemm/isa.h"

namespace dlprim {

// float32 operations per second of one core: independent FMAs on registers for about `seconds`,
// the best of ten stretches. Throws std::invalid_argument for scalar or an unusable ISA.
double fma_peak(Isa isa, double seconds);

// Bytes per second that one core loads from a buffer of `bytes` that it reads again and again for
// about `seconds`: cache or memory bandwidth depending on the size.
double read_bandwidth(Isa isa, std::int64_t bytes, double seconds);

}  // namespace dlprim
