// From spec to machine code; keeps the assembler out of who calls it.
#pragma once

#include <cstdint>
#include <vector>

#include "streams/stream_kernel.h"

namespace dlprim {

// Position-independent code of type void(const StreamArgs*), System V calling convention.
std::vector<std::uint8_t> emit_stream(const StreamSpec& spec, Isa isa);

}  // namespace dlprim
