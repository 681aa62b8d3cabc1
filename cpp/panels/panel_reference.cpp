#include "panels/panel_reference.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "jit/element_reference.h"
#include "panels/panel_packing.h"

namespace dlprim {
namespace {

template <class T>
T loaded(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
void stored(char* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

void store_number(const RowRecord& record, char* to, std::int64_t k, float x) {
    const int rounded = record.is_integer() ? static_cast<int>(x) : 0;
    if (record.method == PanelMethod::floats) {
        stored(to + k * kFloat, x);
    } else if (record.method == PanelMethod::halves) {
        stored(to + k * 2, bfloat16_bits(x));
    } else if (record.method == PanelMethod::words) {
        stored(to + place_in_words(k) * 2, static_cast<std::int16_t>(rounded));
    } else if (record.parts() == 1) {
        to[k] = static_cast<char>(rounded);
    } else {
        const auto h = static_cast<int>(std::nearbyint(x / 128));
        to[k] = static_cast<char>(h);
        to[record.part_at(1) + k] = static_cast<char>(rounded - 128 * h);
    }
}

using Products = std::array<float, kPanelColumns>;

// What one group adds to the sums of a row.
void add_group(const PanelFormat& format, const RowRecord& record, const char* weights,
               const char* row, float* sums) {
    std::array<float, 128 * kPanelColumns> plain;
    const PlainWeights shape{.row = format.group, .C = format.group};
    unpack_panel(format, weights, shape, plain.data());
    const float scale = record.is_integer() ? loaded<float>(row + record.scale_at()) : 1;
    for (std::size_t column = 0; column < kPanelColumns; ++column) {
        double sum = 0;
        for (std::int64_t k = 0; k < format.group; ++k) {
            sum += double{plain[column * format.group + static_cast<std::size_t>(k)]} *
                   double{record_number(record, row, k)};
        }
        sums[column] += static_cast<float>(sum * scale);
    }
}

}  // namespace

float record_number(const RowRecord& record, const char* from, std::int64_t k) {
    switch (record.method) {
        case PanelMethod::floats: return loaded<float>(from + k * kFloat);
        case PanelMethod::halves: return bfloat16_value(loaded<std::uint16_t>(from + k * 2));
        case PanelMethod::words: return loaded<std::int16_t>(from + place_in_words(k) * 2);
        default: break;
    }
    const auto first = static_cast<float>(static_cast<std::int8_t>(from[k]));
    if (record.parts() == 1) return first;
    return 128 * first + static_cast<float>(static_cast<std::int8_t>(from[record.part_at(1) + k]));
}

void reference_panel(const PanelSpec& spec, const RowRecord& record, const PanelArgs& args) {
    for (std::int64_t row = 0; row < spec.rows; ++row) {
        Products sums = {};
        for (std::int64_t group = 0; group < args.groups; ++group) {
            add_group(spec.format, record, args.weights + group * spec.format.group_bytes(),
                      args.records + (group * spec.rows + row) * record.bytes(), sums.data());
        }
        for (std::size_t column = 0; column < spec.columns; ++column) {
            const double biased = double{sums[column]} + (spec.bias ? args.bias[column] : 0.0F);
            set_element(spec.src, args.dst + row * args.dst_row, static_cast<std::int64_t>(column),
                        static_cast<float>(activated(spec.activation, biased)));
        }
    }
}

void reference_records(const RecordSpec& spec, const RecordArgs& args) {
    const RowRecord& record = spec.record;
    for (std::int64_t group = 0; group < args.groups; ++group) {
        const char* const src = args.src + group * record.group * size_of(spec.src);
        char* const to = args.records + group * args.record_step;
        if (!record.is_integer()) {
            for (std::int64_t k = 0; k < record.group; ++k) {
                store_number(record, to, k, element_at(spec.src, src, k));
            }
            continue;
        }
        // Of no number the bits are above those of infinity, so that it is the largest.
        std::uint32_t largest = std::bit_cast<std::uint32_t>(0x1p-100F);
        for (std::int64_t k = 0; k < record.group; ++k) {
            const float size = std::abs(element_at(spec.src, src, k));
            largest = std::max(largest, std::bit_cast<std::uint32_t>(size));
        }
        const auto most = std::bit_cast<float>(largest);
        const float inverse = static_cast<float>(record.most()) / most;
        float sum = 0;
        for (std::int64_t k = 0; k < record.group; ++k) {
            const float scaled = std::nearbyint(element_at(spec.src, src, k) * inverse);
            const float bounded = std::isfinite(most) ? scaled : 0;
            store_number(record, to, k, bounded);
            sum += bounded;
        }
        stored(to + record.scale_at(), most * (1 / static_cast<float>(record.most())));
        stored(to + record.zero_at(), -static_cast<std::int32_t>(sum) * spec.zero);
    }
}

}  // namespace dlprim
