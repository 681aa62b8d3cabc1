// Transposition where one side is three long, as the channels of a colour image are: too narrow
// for the squares of transpose_rows.cpp and transpose_halves.cpp, so whole vectors are interleaved.
#pragma once

#include "jit/isa.h"
#include "primitives/tensor/transposition.h"

namespace dlprim {

struct ThreeFunctions {
    void (*join)(const Transposition& matrix);   // rows == 3, ld_dst == 3
    void (*split)(const Transposition& matrix);  // columns == 3, ld_src == 3
};

// For an ISA level that this machine can run, f32 or bf16.
ThreeFunctions three_functions(Isa isa, DType dtype);

}  // namespace dlprim
