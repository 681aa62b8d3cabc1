// The vector code behind transposition.h for elements of two bytes; those of four bytes are what
// transpose_rows.cpp moves. Chosen by ISA level as per_isa.h says.
#pragma once

#include "jit/isa.h"
#include "primitives/tensor/transposition.h"

namespace dlprim {

struct HalfFunctions {
    void (*transpose)(const Transposition& matrix);
    void (*transpose_packed)(const Transposition& matrix);
};

// For an ISA level that this machine can run.
HalfFunctions half_functions(Isa isa);

}  // namespace dlprim
