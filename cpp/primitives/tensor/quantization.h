// What a layer of 8-bit operands needs besides them. Its sums of products are exact integers, and
// so is int_bias, with which they begin: it holds what a zero point of src adds to each sum,
// -zero_point * sum of the weights, and an integer bias. Then come one scale for each channel and
// the range of an 8-bit result: what its type holds, relu and clips of the real numbers that it
// stands for are all bounds of one interval, which costs no more than the first of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "jit/activation.h"
#include "jit/dtype.h"

namespace dlprim {

// Of the weights of layers whose images or samples are of `dtype`: symmetric around zero where
// those are of 8 bits.
constexpr DType weights_type(DType dtype) { return is_int8(dtype) ? DType::s8 : dtype; }

// In steps of the result, without the zero point, which is added behind the rounding.
struct ResultRange {
    float lowest = -std::numeric_limits<float>::infinity();
    float highest = std::numeric_limits<float>::infinity();
    std::int32_t zero_point = 0;
};

// Of a sum that is rounded to 8 bits of its own in front of a residual: bounds in its steps, and
// what its integers are in steps of the result, `scale` times them and `shift`, which holds the
// zero point of the residual as well.
struct InnerRounding {
    float lowest = 0;
    float highest = 0;
    float scale = 1;
    float shift = 0;
};

struct Quantization {
    const std::int32_t* int_bias = nullptr;  // K values where the layer has them
    const float* scale = nullptr;            // K values, but not for an int32 result
    std::int32_t src_zero_point = 0;         // what padding is
    // Of an 8-bit result.
    float residual_scale = 1;
    std::optional<InnerRounding> inner = {};  // with a residual
    ResultRange range = {};
};

// The part of it that a result of an 8-bit type takes.
inline ResultRange held_range(ResultRange range, DType type, Activation activation) {
    const bool is_unsigned = type == DType::u8;
    const auto zero = static_cast<float>(range.zero_point);
    const float least = (is_unsigned ? 0.0F : -128.0F) - zero;
    const float most = (is_unsigned ? 255.0F : 127.0F) - zero;
    if (activation == Activation::relu) range.lowest = std::max(range.lowest, 0.0F);
    range.lowest = std::clamp(range.lowest, least, most);
    range.highest = std::clamp(range.highest, least, most);
    range.lowest = std::min(range.lowest, range.highest);  // all that relu leaves is above
    return range;
}

}  // namespace dlprim
