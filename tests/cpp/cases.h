// How many cases of so many are run: a quarter at the scalar level, whose kernels are loops that
// sanitizers slow down most, and the same for all shapes.
#pragma once

#include "jit/isa.h"

namespace dlprim::testing {

inline unsigned cases(unsigned count) {
    return usable_isa() == Isa::scalar ? (count + 3) / 4 : count;
}

}  // namespace dlprim::testing
