// Requests for kernels as chance makes them, of all types, epilogues and addressings, edges more
// often than others. The fuzzer runs them, and the test that code has not changed only emits them.
#pragma once

#include "brgemm/spec.h"
#include "draw.h"

namespace dlprim::testing {

// Both validated. Of the first, test_same_code.cpp has recorded the code of a thousand, so that
// what is added since is drawn behind it.
BrgemmSpec draw_spec(Draw& draw);
BrgemmSpec draw_any_spec(Draw& draw);

}  // namespace dlprim::testing
