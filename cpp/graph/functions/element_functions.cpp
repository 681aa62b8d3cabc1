#include "graph/functions/element_functions.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

// Of sorted keys the first that is not below x, in as many steps for any x.
template <class T>
std::int64_t first_not_below(const T* keys, std::int64_t count, T x) {
    const T* from = keys;
    while (count > 1) {
        const std::int64_t half = count / 2;
        from = from[half - 1] < x ? from + half : from;
        count -= half;
    }
    return from - keys + (count == 1 && *from < x ? 1 : 0);
}

struct LookUp {
    ArrayCall call;
    std::int64_t count = 0, keys = 0;

    template <class T>
    void search(const Addresses& at) const {
        const T *const x = at[call.inputs[0]], *const key = at[call.inputs[1]];
        const std::int64_t* const place = at[call.inputs[2]];
        std::int64_t* const dst = at[call.outputs[0]];
        for (std::int64_t i = 0; i < count; ++i) {
            std::int64_t found = first_not_below(key, keys, x[i]);
            bool is_there = found < keys && key[found] == x[i];
            if constexpr (std::is_floating_point_v<T>) {
                const bool is_lost = x[i] != x[i] && key[keys - 1] != key[keys - 1];
                found = is_lost ? keys - 1 : found;
                is_there = is_there || is_lost;
            }
            dst[i] = is_there ? place[found] : keys;
        }
    }

    // Integers near each other have a table of all between them, where that is made in less time.
    void run_integers(const Addresses& at) const {
        const std::int64_t *const key = at[call.inputs[1]], *const place = at[call.inputs[2]];
        const auto low = static_cast<std::uint64_t>(key[0]);
        const std::uint64_t span = static_cast<std::uint64_t>(key[keys - 1]) - low;
        if (span >= static_cast<std::uint64_t>(2 * count)) return search<std::int64_t>(at);
        const auto cells = static_cast<std::int64_t>(span) + 1;
        const WorkspacePool::Lease own(WorkspacePool::lasting(), 8 * cells);
        auto* const table = reinterpret_cast<std::int64_t*>(own.data());
        std::fill_n(table, cells, keys);
        for (std::int64_t i = keys; i-- > 0;) {
            table[static_cast<std::uint64_t>(key[i]) - low] = place[i];
        }
        const std::int64_t* const x = at[call.inputs[0]];
        std::int64_t* const dst = at[call.outputs[0]];
        for (std::int64_t i = 0; i < count; ++i) {
            const std::uint64_t cell = static_cast<std::uint64_t>(x[i]) - low;
            dst[i] = cell <= span ? table[cell] : keys;
        }
    }
};

template <class Word>
std::uint32_t hash_of(const char* from, std::uint32_t seed) {
    std::uint32_t value = seed;
    for (std::size_t word = 0; word < sizeof(Word) / 4; ++word) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, from + 4 * word, sizeof bits);
        value ^= std::rotl(bits * 0xCC9E2D51U, 15) * 0x1B873593U;
        value = std::rotl(value, 13) * 5 + 0xE6546B64U;
    }
    value ^= static_cast<std::uint32_t>(sizeof(Word));
    value = (value ^ (value >> 16)) * 0x85EBCA6BU;
    value = (value ^ (value >> 13)) * 0xC2B2AE35U;
    return value ^ (value >> 16);
}

template <class Word>
void hash_all(const char* src, std::int64_t count, std::uint32_t seed, std::uint32_t* dst) {
    for (std::int64_t i = 0; i < count; ++i) {
        dst[i] = hash_of<Word>(src + i * static_cast<std::int64_t>(sizeof(Word)), seed);
    }
}

// In lanes, so that whoever compiles it need not keep the order of a loop.
std::pair<float, float> ends_of(const float* x, std::int64_t count) {
    constexpr std::size_t kLanes = 16;
    std::array<float, kLanes> low{}, high{};  // 0 is among them
    std::int64_t i = 0;
    for (; i + static_cast<std::int64_t>(kLanes) <= count; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            const float it = x[i + static_cast<std::int64_t>(lane)];
            low[lane] = it < low[lane] ? it : low[lane];
            high[lane] = it > high[lane] ? it : high[lane];
        }
    }
    for (; i < count; ++i) {
        low[0] = std::min(low[0], x[i]);
        high[0] = std::max(high[0], x[i]);
    }
    return {*std::min_element(low.begin(), low.end()), *std::max_element(high.begin(), high.end())};
}

// To the nearest integer, halves to even ones; of numbers of up to 22 bits.
float rounded(float x) {
    constexpr float kWithoutFraction = 12582912;  // 1.5 * 2^23
    return (x + kWithoutFraction) - kWithoutFraction;
}

void to_bytes(const float* x, std::int64_t count, float* scale, std::uint8_t* zero,
              std::uint8_t* dst) {
    const auto [low, high] = ends_of(x, count);
    *scale = (high - low) / 255;
    const float shift = *scale > 0 ? rounded(-low / *scale) : 0;
    *zero = static_cast<std::uint8_t>(shift < 255 ? shift : 255);
    const float by = *scale > 0 ? *scale : 1;
    for (std::int64_t i = 0; i < count; ++i) {
        const float made = rounded(x[i] / by) + shift;
        const float least = made > 0 ? made : 0;
        dst[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(least < 255 ? least : 255));
    }
}

}  // namespace

RunOfCall looked_up(const Network& network, const ArrayCall& call) {
    const auto kind = [&](int value) {
        const std::string& dtype = network.tensor(value).dtype;
        return dtype.starts_with("timedelta64") ? std::string("int64") : dtype;
    };
    bool fits = call.inputs.size() == 3 && call.outputs.size() == 1;
    const std::string dtype = fits ? kind(call.inputs[0]) : "";
    const LookUp made{
        .call = call,
        .count = fits ? network.tensor(call.inputs[0]).elements() : 0,
        .keys = fits ? network.tensor(call.inputs[1]).elements() : 0,
    };
    fits = fits && (dtype == "int64" || dtype == "float32" || dtype == "float64") &&
           made.keys > 0 && kind(call.inputs[1]) == dtype && kind(call.inputs[2]) == "int64" &&
           network.tensor(call.inputs[2]).elements() == made.keys &&
           kind(call.outputs[0]) == "int64" &&
           network.tensor(call.outputs[0]).elements() == made.count;
    require_fit(fits, network, call, "elements, keys of their type, places and results of int64");
    if (dtype == "int64") return [made](const Addresses& at) { made.run_integers(at); };
    if (dtype == "float32") return [made](const Addresses& at) { made.search<float>(at); };
    return [made](const Addresses& at) { made.search<double>(at); };
}

RunOfCall one_hot_rows(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 1 && call.outputs.size() == 1;
    const std::int64_t count = fits ? network.tensor(call.inputs[0]).elements() : 0;
    const std::int64_t cells = fits ? network.tensor(call.outputs[0]).elements() : 0;
    fits = fits && network.tensor(call.inputs[0]).dtype == "int64" &&
           network.tensor(call.outputs[0]).dtype == "float32" && count > 0 && cells % count == 0;
    require_fit(fits, network, call, "places of int64, and a row of float32 for each");
    const std::int64_t width = cells / count;
    return [=](const Addresses& at) {
        const std::int64_t* const places = at[call.inputs[0]];
        float* const dst = at[call.outputs[0]];
        std::fill_n(dst, cells, 0.0F);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t place = places[i];
            if (place >= 0 && place < width) dst[i * width + place] = 1.0F;
        }
    };
}

RunOfCall in_bytes(const Network& network, const ArrayCall& call) {
    const bool has_all = call.inputs.size() == 1 && call.outputs.size() == 3;
    const std::int64_t count = has_all ? network.tensor(call.inputs[0]).elements() : 0;
    const auto is = [&](int value, const char* dtype, std::int64_t elements) {
        return network.tensor(value).dtype == dtype && network.tensor(value).elements() == elements;
    };
    require_fit(has_all && count > 0 && is(call.inputs[0], "float32", count) &&
                    is(call.outputs[0], "uint8", count) && is(call.outputs[1], "float32", 1) &&
                    is(call.outputs[2], "uint8", 1),
                network, call, "float32, as many uint8, a float32 and a uint8");
    return [=](const Addresses& at) {
        to_bytes(at[call.inputs[0]], count, at[call.outputs[1]], at[call.outputs[2]],
                 at[call.outputs[0]]);
    };
}

RunOfCall hashes(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 1 && call.outputs.size() == 1;
    const std::int64_t element = fits ? network.tensor(call.inputs[0]).element : 0;
    const std::int64_t count = fits ? network.tensor(call.inputs[0]).elements() : 0;
    fits = fits && (element == 4 || element == 8) && network.tensor(call.outputs[0]).element == 4 &&
           network.tensor(call.outputs[0]).elements() == count;
    require_fit(fits, network, call, "elements of 4 or 8 bytes, and as many of 4");
    const auto seed = static_cast<std::uint32_t>(number_of(call, "seed"));
    return [=](const Addresses& at) {
        const char* const src = at[call.inputs[0]];
        std::uint32_t* const dst = at[call.outputs[0]];
        element == 4 ? hash_all<std::uint32_t>(src, count, seed, dst)
                     : hash_all<std::uint64_t>(src, count, seed, dst);
    };
}

}  // namespace dlprim
