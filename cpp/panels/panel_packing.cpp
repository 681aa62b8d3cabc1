#include "panels/panel_packing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "jit/element_reference.h"

namespace dlprim {
namespace {

constexpr int kMostGroup = 128;
// Weights below this are zero: the inverse of their scale would be none.
constexpr float kLeastScale = 1e-36F;

// Weights of one column and group: integers, and what they stand for.
struct RoundedGroup {
    std::array<std::uint8_t, kMostGroup> weights = {};
    float scale = 0;  // of the format's type
    std::uint8_t zero_point = 0;
};

using Values = std::array<float, kMostGroup>;

float as_stored(DType type, float scale) {
    if (type == DType::f32) return scale;
    return type == DType::f16 ? half_value(half_bits(scale)) : bfloat16_value(bfloat16_bits(scale));
}

std::uint32_t loaded_word(const char* at) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, sizeof word);
    return word;
}

// Of 4 and 8 bits, with k counted from the beginning of the word.
int shift_in_word(const PanelFormat& format, int k) {
    return format.bits == 8 ? k * 8 : k % 4 * 8 + k / 4 * 4;
}

bool load_values(const PlainWeights& it, std::int64_t at, std::int64_t count, Values& to) {
    bool finite = true;
    const auto widen = [&](const auto* from, const auto& value_of) {
        for (std::int64_t k = 0; k < count; ++k) {
            const float value = value_of(from[at + k]);
            to[static_cast<std::size_t>(k)] = value;
            finite &= std::abs(value) <= 3.4e38F;
        }
    };
    if (it.dtype == DType::f32) {
        widen(static_cast<const float*>(it.data), [](float value) { return value; });
    } else if (it.dtype == DType::bf16) {
        widen(static_cast<const std::uint16_t*>(it.data), bfloat16_value);
    } else {
        widen(static_cast<const std::uint16_t*>(it.data), half_value);
    }
    return finite;
}

// Without zero points: the number farthest from zero is the lowest integer, so that all of them are
// used; of 8 bits there are enough for a symmetric range.
float middle_scale(const PanelFormat& format, const Values& values) {
    float lowest = 0, highest = 0;
    for (int k = 0; k < format.group; ++k) {
        lowest = std::min(lowest, values[static_cast<std::size_t>(k)]);
        highest = std::max(highest, values[static_cast<std::size_t>(k)]);
    }
    const float farthest = -lowest > highest ? lowest : highest;
    const auto steps = static_cast<float>(format.zero());
    return format.bits == 8 ? std::abs(farthest) / (steps - 1) : -farthest / steps;
}

float ranged_scale(const PanelFormat& format, const Values& values, float& lowest) {
    float highest = 0;
    for (int k = 0; k < format.group; ++k) {
        lowest = std::min(lowest, values[static_cast<std::size_t>(k)]);
        highest = std::max(highest, values[static_cast<std::size_t>(k)]);
    }
    return (highest - lowest) / static_cast<float>((1 << format.bits) - 1);
}

RoundedGroup rounded(const PanelFormat& format, const Values& values) {
    RoundedGroup made;
    const auto most = static_cast<float>((1 << format.bits) - 1);
    float lowest = 0;
    const float wanted =
        format.zero_points ? ranged_scale(format, values, lowest) : middle_scale(format, values);
    made.scale = as_stored(format.scales, std::abs(wanted) < kLeastScale ? 0 : wanted);
    const float inverse = made.scale == 0 ? 0 : 1 / made.scale;
    float zero = static_cast<float>(format.zero());
    if (format.zero_points) {
        zero = std::clamp(std::nearbyint(-lowest * inverse), 0.0F, most);
        made.zero_point = static_cast<std::uint8_t>(zero);
    }
    for (int k = 0; k < format.group; ++k) {
        // Halves go up, which is one instruction where the library is built for any machine.
        const float step = values[static_cast<std::size_t>(k)] * inverse + zero + 0.5F;
        const float bounded = std::clamp(step, 0.0F, most);
        made.weights[static_cast<std::size_t>(k)] = static_cast<std::uint8_t>(bounded);
    }
    return made;
}

void store_group(const PanelFormat& format, const RoundedGroup& it, int column, char* group) {
    const int per_word = format.weights_per_word();
    for (int k = 0; k < format.group; k += per_word) {
        std::uint32_t word = 0;
        for (int i = 0; i < per_word; ++i) {
            word |= std::uint32_t{it.weights[static_cast<std::size_t>(k + i)]}
                    << shift_in_word(format, i);
        }
        std::memcpy(group + format.word_at(k, column), &word, sizeof word);
    }
    char* const scales = group + format.scales_at();
    if (format.scales == DType::f32) {
        std::memcpy(scales + column * kFloat, &it.scale, sizeof it.scale);
    } else {
        const std::uint16_t bits =
            format.scales == DType::f16 ? half_bits(it.scale) : bfloat16_bits(it.scale);
        std::memcpy(scales + column * 2, &bits, sizeof bits);
    }
    if (format.zero_points) {
        group[format.zero_points_at() + column] = static_cast<char>(it.zero_point);
    }
}

void store_halves(const PanelFormat& format, const Values& values, int column, char* group) {
    for (int k = 0; k < format.group; k += 2) {
        const auto at = static_cast<std::size_t>(k);
        const std::array pair{bfloat16_bits(values[at]), bfloat16_bits(values[at + 1])};
        std::memcpy(group + format.word_at(k, column), pair.data(), sizeof pair);
    }
}

// Calls body(group, first weight, how many) for each.
template <class Body>
void for_groups(const PanelFormat& format, std::int64_t C, const Body& body) {
    for (std::int64_t group = 0; group < format.groups(C); ++group) {
        const std::int64_t first = group * format.group;
        body(group, first, std::min<std::int64_t>(format.group, C - first));
    }
}

// What a column beyond the last weights holds, so that it adds nothing.
RoundedGroup no_weights(const PanelFormat& format) { return rounded(format, Values{}); }

}  // namespace

bool pack_panel(const PanelFormat& format, const PlainWeights& it, char* panel) {
    bool finite = true;
    for (int column = 0; column < kPanelColumns; ++column) {
        for_groups(format, it.C, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
            char* const to = panel + group * format.group_bytes();
            Values values = {};
            if (column < it.columns) {
                finite &= load_values(it, column * it.row + first, count, values);
            }
            format.bits == 16 ? store_halves(format, values, column, to)
                              : store_group(format, rounded(format, values), column, to);
        });
    }
    return finite;
}

void pack_panel(const PanelFormat& format, const GivenWeights& it, char* panel) {
    const std::int64_t groups = format.groups(it.C);
    for (int column = 0; column < kPanelColumns; ++column) {
        for_groups(format, it.C, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
            RoundedGroup made = no_weights(format);
            if (column < it.columns) {
                const std::int64_t at = column * groups + group;
                made.scale = element_at(format.scales, it.scales, at);
                if (format.zero_points) made.zero_point = it.zero_points[at];
                const int zero = format.zero_points ? made.zero_point : format.zero();
                made.weights.fill(static_cast<std::uint8_t>(zero));
                std::copy_n(it.weights + column * it.C + first, count, made.weights.begin());
            }
            store_group(format, made, column, panel + group * format.group_bytes());
        });
    }
}

void unpack_panel(const PanelFormat& format, const char* panel, const PlainWeights& shape,
                  float* to) {
    const int per_word = format.weights_per_word();
    for_groups(format, shape.C, [&](std::int64_t group, std::int64_t first, std::int64_t count) {
        const char* const from = panel + group * format.group_bytes();
        const char* const scales = from + format.scales_at();
        const auto* const zeros =
            reinterpret_cast<const std::uint8_t*>(from + format.zero_points_at());
        for (int column = 0; column < shape.columns; ++column) {
            float* const row = to + column * shape.row + first;
            for (int k = 0; k < count; ++k) {
                const std::uint32_t word = loaded_word(from + format.word_at(k, column));
                if (format.bits == 16) {
                    row[k] = bfloat16_value(static_cast<std::uint16_t>(word >> k % 2 * 16));
                    continue;
                }
                const std::uint32_t bits =
                    word >> shift_in_word(format, k % per_word) & ((1U << format.bits) - 1);
                const int zero = format.zero_points ? zeros[column] : format.zero();
                row[k] = static_cast<float>(static_cast<int>(bits) - zero) *
                         element_at(format.scales, scales, column);
            }
        }
    });
}

}  // namespace dlprim
