#include "graph/elements/placed_rows_step.h"

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "graph/network.h"

namespace dlprim {
namespace {

constexpr std::size_t kAxes = 4;

struct PlacedRows {
    PlacedRowsValues values;
    NetworkTensor cache;
    NetworkTensor rows;

    void run(const Addresses& at) const {
        const std::int64_t samples = cache.shape[0], count = rows.shape[2];
        const std::int64_t* const given = at[values.places];
        // Copied before they are checked: whoever owns the array may write to it meanwhile.
        const std::vector<std::int64_t> places(given, given + samples);
        for (const std::int64_t place : places) {
            if (place >= 0 && place <= cache.shape[2] - count) continue;
            throw std::out_of_range("a cache of " + std::to_string(cache.shape[2]) +
                                    " places has none for " + std::to_string(count) +
                                    " rows from " + std::to_string(place) + " on");
        }
        char* const dst = at[values.dst];
        const char* const was = at[values.cache];
        if (dst != was) std::memcpy(dst, was, static_cast<std::size_t>(cache.bytes()));
        const char* const src = at[values.rows];
        const auto bytes = static_cast<std::size_t>(cache.shape[3] * cache.element);
        for (std::int64_t n = 0; n < samples; ++n) {
            for (std::int64_t h = 0; h < cache.shape[1]; ++h) {
                for (std::int64_t i = 0; i < count; ++i) {
                    const std::int64_t place = places[static_cast<std::size_t>(n)] + i;
                    std::memcpy(
                        dst + n * cache.strides[0] + h * cache.strides[1] +
                            place * cache.strides[2],
                        src + n * rows.strides[0] + h * rows.strides[1] + i * rows.strides[2],
                        bytes);
                }
            }
        }
    }
};

}  // namespace

NetworkStep placed_rows_step(const Network& network, const PlacedRowsValues& values,
                             std::string label) {
    const NetworkTensor &cache = network.tensor(values.cache), &rows = network.tensor(values.rows),
                        &places = network.tensor(values.places), &dst = network.tensor(values.dst);
    const bool have_axes = cache.shape.size() == kAxes && rows.shape.size() == kAxes;
    const bool fits =
        have_axes && cache.is_dense() && dst.is_dense() && dst.shape == cache.shape &&
        dst.dtype == cache.dtype && rows.dtype == cache.dtype && rows.shape[0] == cache.shape[0] &&
        rows.shape[1] == cache.shape[1] && rows.shape[3] == cache.shape[3] &&
        (rows.shape[3] <= 1 || rows.strides[3] == rows.element) && places.dtype == "int64" &&
        places.is_dense() && places.elements() == cache.shape[0];
    if (!fits) {
        throw std::invalid_argument("rows are " + rows.described() + " at " + places.described() +
                                    " of " + cache.described() +
                                    ", expected rows and a cache of one type, (N, H, places, "
                                    "size), and N places in int64");
    }
    NetworkStep step{.kind = "placed_rows",
                     .label = std::move(label),
                     .reads = {values.cache, values.rows, values.places},
                     .writes = {values.dst},
                     .replaced = {values.cache}};
    const PlacedRows it{.values = values, .cache = cache, .rows = rows};
    step.run = [it](const Addresses& at) { it.run(at); };
    return step;
}

}  // namespace dlprim
