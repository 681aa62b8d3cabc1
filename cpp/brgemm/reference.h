// The kernel contract in plain loops: what generated kernels are tested against in C++, and what
// runs where the CPU has no ISA level that kernels are generated for.
#pragma once

#include "brgemm/args.h"
#include "brgemm/spec.h"

namespace dlprim {

// `spec` must be validated.
void reference_brgemm(const BrgemmSpec& spec, const BrgemmArgs& args);

}  // namespace dlprim
