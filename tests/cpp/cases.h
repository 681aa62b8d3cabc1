// How many cases of so many are run: all of them in a build as users have it, half of them under
// sanitizers, which is what .ci/run builds; at the scalar level, whose kernels are loops and the
// same for all shapes, a quarter of either.
#pragma once

#include <cstdint>

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

// Of cases that are numbered as they are met, whether this one is run: drawn by a hash, so that
// what alternates with the number is not left out.
constexpr bool is_run(std::uint32_t number) { return (number * 2654435761U >> 16) % kOneIn == 0; }

}  // namespace dlprim::testing
