// From plan to machine code. The emitter decides nothing: every number in the code it writes
// comes from the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "brgemm/plan.h"

namespace dlprim {

// Position-independent code of type void(const BrgemmArgs*, const std::int64_t* counts), System V
// calling convention; that of a shared plan reads LoopCounts there. The plan's ISA must be avx2 or
// higher.
std::vector<std::uint8_t> emit_brgemm(const BrgemmPlan& plan);

// Of Xbyak, whose releases choose between encodings of an instruction: the same plan is the same
// bytes only with the same release.
int encoder_version();

}  // namespace dlprim
