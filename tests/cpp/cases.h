// How many cases of so many are run. All of them in a build as users have it, natively and at AVX2
// (.ci/long); half of them under sanitizers, which a change is checked with (.ci/run); and of
// either a quarter at the scalar level, whose kernels are loops and the same for all shapes.
#pragma once

#include "jit/isa.h"

namespace dlprim::testing {

#ifdef __SANITIZE_ADDRESS__
inline constexpr unsigned kOneIn = 2;
#else
inline constexpr unsigned kOneIn = 1;
#endif

inline unsigned cases(unsigned count) {
    const unsigned one_in = kOneIn * (usable_isa() == Isa::scalar ? 4 : 1);
    return (count + one_in - 1) / one_in;
}

}  // namespace dlprim::testing
