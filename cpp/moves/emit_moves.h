// From spec to machine code; keeps the assembler out of who calls it.
#pragma once

#include <cstdint>
#include <vector>

#include "moves/move_kernel.h"

namespace dlprim {

// Position-independent code of type void(const MoveArgs*), System V calling convention.
std::vector<std::uint8_t> emit_move(const MoveSpec& spec, Isa isa);
// Where three rows become triples, or triples rows.
std::vector<std::uint8_t> emit_triples(const MoveSpec& spec, Isa isa);
// Where two rows of units of four bytes become pairs, or pairs rows.
std::vector<std::uint8_t> emit_pairs(const MoveSpec& spec, Isa isa);

}  // namespace dlprim
