// From plan to machine code; keeps the assembler out of who calls it.
#pragma once

#include <cstdint>
#include <vector>

#include "panels/panel_kernel.h"

namespace dlprim {

// Position-independent code of type void(const PanelArgs*), System V calling convention.
std::vector<std::uint8_t> emit_panel(const PanelPlan& plan);
// The same of type void(const RecordArgs*).
std::vector<std::uint8_t> emit_records(const RecordSpec& spec, Isa isa);

}  // namespace dlprim
