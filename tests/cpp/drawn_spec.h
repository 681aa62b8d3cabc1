// Requests for kernels as chance makes them, of all types, epilogues and addressings, edges more
// often than others. The fuzzer runs them, and the test that code has not changed only emits them.
#pragma once

#include "brgemm/spec.h"
#include "draw.h"

namespace dlprim::testing {

// Validated.
BrgemmSpec draw_spec(Draw& draw);

}  // namespace dlprim::testing
