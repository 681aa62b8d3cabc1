// How many cases of so many are run. All of them in the suites of a build as users have it,
// natively and at AVX2; a quarter under sanitizers, which look for accesses and not for numbers,
// and a quarter at the scalar level, whose kernels are loops and the same for all shapes.
#pragma once

#include "jit/isa.h"

namespace dlprim::testing {

#ifdef __SANITIZE_ADDRESS__
inline constexpr unsigned kOneIn = 4;
#else
inline constexpr unsigned kOneIn = 1;
#endif

inline unsigned cases(unsigned count) {
    const unsigned one_in = kOneIn * (usable_isa() == Isa::scalar ? 4 : 1);
    return (count + one_in - 1) / one_in;
}

}  // namespace dlprim::testing
