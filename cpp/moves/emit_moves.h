// From spec to machine code; keeps the assembler out of who calls it.
#pragma once

#include <cstdint>
#include <vector>

#include "moves/move_kernel.h"

namespace dlprim {

// Position-independent code of type void(const MoveArgs*), System V calling convention.
std::vector<std::uint8_t> emit_move(const MoveSpec& spec, Isa isa);

}  // namespace dlprim
