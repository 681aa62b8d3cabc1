#include "rows/functions/rare_function.h"

#include <bit>
#include <cmath>

namespace dlprim {

float rare_value(RareFunction function, float a, float b) {
    switch (function) {
        case RareFunction::sin: return static_cast<float>(std::sin(double{a}));
        case RareFunction::cos: return static_cast<float>(std::cos(double{a}));
        case RareFunction::tan: return static_cast<float>(std::tan(double{a}));
        case RareFunction::fmod: return std::fmod(a, b);
    }
    return a;
}

void replace_rare(float* operands, std::uint32_t chosen, std::uint32_t lanes,
                  std::uint32_t function) {
    for (; chosen != 0; chosen &= chosen - 1) {
        const auto lane = static_cast<std::uint32_t>(std::countr_zero(chosen));
        operands[2 * lanes + lane] =
            rare_value(static_cast<RareFunction>(function), operands[lane], operands[lanes + lane]);
    }
}

}  // namespace dlprim
