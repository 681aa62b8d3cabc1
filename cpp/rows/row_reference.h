// What a row program means, in plain loops: the oracle of generated code, and what runs where there
// are no vectors. Every operation goes over a whole row before the next one begins.
#pragma once

#include "rows/row_args.h"
#include "rows/row_spec.h"

namespace dlprim {

// The caller vouches for the memory behind `args`, as for generated code. Needs no scratch.
void reference_rows(const RowSpec& spec, const RowArgs& args);

}  // namespace dlprim
