// Weights into panels and back, in plain loops: it happens once, and reading the plain weights is
// most of it.
#pragma once

#include <cstdint>

#include "panels/panel_format.h"

namespace dlprim {

// Rows of plain weights, (K, C): as many as a panel has columns, or fewer.
struct PlainWeights {
    const void* data = nullptr;
    DType dtype = DType::f32;  // float32, bfloat16 or float16
    std::int64_t row = 0;      // elements from one to the next
    std::int64_t C = 0;
    int columns = kPanelColumns;
};

// Rounds them to a panel. False where a value is not finite; the panel is then of no use.
bool pack_panel(const PanelFormat& format, const PlainWeights& weights, char* panel);

// Weights that have been rounded before.
struct GivenWeights {
    const std::uint8_t* weights = nullptr;      // (K, C)
    const void* scales = nullptr;               // (K, groups), of the format's type
    const std::uint8_t* zero_points = nullptr;  // (K, groups), where the format has them
    std::int64_t C = 0;
    int columns = kPanelColumns;
};

void pack_panel(const PanelFormat& format, const GivenWeights& weights, char* panel);

// The numbers that a panel stands for, as rows that are `row` floats apart.
void unpack_panel(const PanelFormat& format, const char* panel, const PlainWeights& shape,
                  float* to);

}  // namespace dlprim
