#include "graph/elements/gather_step.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "graph/network.h"
#include "primitives/layers/embedding.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

struct Gathering {
    GatheredValues values;
    std::int64_t before = 1;     // tables, one behind the other
    std::int64_t rows = 0;       // of a table
    std::int64_t row_bytes = 0;  // of one
    std::int64_t count = 0;      // of indices
    std::shared_ptr<WorkspacePool> workspaces = WorkspacePool::shared();

    template <class Index>
    void run(const Addresses& at) const {
        const auto bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
        const WorkspacePool::Lease own(*workspaces, count * bytes);
        auto* const places = reinterpret_cast<std::int64_t*>(own.data());
        // Copied before they are checked: whoever owns the array may write to it meanwhile.
        const Index* const given = at[values.indices];
        std::copy_n(given, count, places);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t index = places[i];
            if (index < (values.argument.empty() ? -rows : 0) || index >= rows) {
                refuse_index(values.argument, index, rows);
            }
            places[i] = index < 0 ? index + rows : index;
        }
        const char* const table = at[values.table];
        char* const dst = at[values.dst];
        for (std::int64_t i = 0; i < before; ++i) {
            gather_rows(places, count, table + i * rows * row_bytes, row_bytes,
                        dst + i * count * row_bytes);
        }
    }
};

// Eight bytes at once: elements are read and written as one number.
void translate(const std::uint8_t* table, const std::uint8_t* src, std::uint8_t* dst,
               std::int64_t count) {
    std::int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        std::uint64_t given = 0;
        std::memcpy(&given, src + i, sizeof given);
        const auto at = [&](int bit) {
            return static_cast<std::uint64_t>(table[given >> bit & 255]) << bit;
        };
        const std::uint64_t made =
            at(0) | at(8) | at(16) | at(24) | at(32) | at(40) | at(48) | at(56);
        std::memcpy(dst + i, &made, sizeof made);
    }
    for (; i < count; ++i) dst[i] = table[src[i]];
}

template <class Word>
void translate(const Word* table, const std::uint8_t* src, Word* dst, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) dst[i] = table[src[i]];
}

// Of a table with an element for each byte no index is outside.
struct Translation {
    GatheredValues values;
    std::int64_t count = 0;

    template <class Word>
    void run(const Addresses& at) const {
        const Word* const table = at[values.table];
        const std::uint8_t* const src = at[values.indices];
        Word* const dst = at[values.dst];
        constexpr std::int64_t kPiece = 1 << 14;
        parallel_for((count + kPiece - 1) / kPiece, [&](std::int64_t piece) {
            const std::int64_t first = piece * kPiece;
            translate(table, src + first, dst + first, std::min(kPiece, count - first));
        });
    }

    void run(const Addresses& at, std::int64_t element) const {
        switch (element) {
            case 1: return run<std::uint8_t>(at);
            case 2: return run<std::uint16_t>(at);
            case 4: return run<std::uint32_t>(at);
            default: return run<std::uint64_t>(at);
        }
    }
};

}  // namespace

void refuse_index(const std::string& argument, std::int64_t index, std::int64_t rows) {
    const std::string it = std::to_string(index), end = std::to_string(rows);
    if (argument.empty()) {
        throw std::out_of_range("index " + it + " is outside of " + end + " rows");
    }
    throw std::out_of_range(argument + " holds " + it + ", expected values in [0, " + end + ")");
}

NetworkStep gather_step(const Network& network, const GatheredValues& values, std::string label) {
    const NetworkTensor &table = network.tensor(values.table),
                        &indices = network.tensor(values.indices),
                        &dst = network.tensor(values.dst);
    const auto axis = static_cast<std::size_t>(std::max(values.axis, 0));
    const bool has_axis = values.axis >= 0 && axis < table.shape.size();
    std::vector<std::int64_t> shape = indices.shape;
    if (has_axis) {
        const auto at = table.shape.begin() + values.axis;
        shape.insert(shape.begin(), table.shape.begin(), at);
        shape.insert(shape.end(), at + 1, table.shape.end());
    }
    const bool is_wide = indices.dtype == "int64";
    const bool is_bytes = indices.dtype == "uint8" && shape == indices.shape &&
                          table.shape == std::vector<std::int64_t>{256} && table.element <= 8 &&
                          std::has_single_bit(static_cast<std::uint64_t>(table.element));
    const bool fits = has_axis && dst.shape == shape && dst.dtype == table.dtype &&
                      (is_wide || is_bytes || indices.dtype == "int32") && table.is_dense() &&
                      indices.is_dense() && dst.is_dense();
    if (!fits) {
        throw std::invalid_argument("a gather is of rows of " + table.described() + " at " +
                                    indices.described() + " to " + dst.described() +
                                    ", expected int32 or int64 indices, or bytes of a table of "
                                    "256 elements of 1, 2, 4 or 8 bytes, and a result of their "
                                    "shape and a row's, all in C order");
    }
    Gathering it{.values = values,
                 .rows = table.shape[axis],
                 .row_bytes = table.element,
                 .count = indices.elements()};
    for (std::size_t i = 0; i < axis; ++i) it.before *= table.shape[i];
    for (std::size_t i = axis + 1; i < table.shape.size(); ++i) it.row_bytes *= table.shape[i];
    NetworkStep step{.kind = "gather",
                     .label = std::move(label),
                     .reads = {values.table, values.indices},
                     .writes = {values.dst}};
    if (is_bytes) {
        const Translation bytes{.values = values, .count = indices.elements()};
        step.run = [bytes, element = table.element](const Addresses& at) {
            bytes.run(at, element);
        };
    } else if (is_wide) {
        step.run = [it](const Addresses& at) { it.run<std::int64_t>(at); };
    } else {
        step.run = [it](const Addresses& at) { it.run<std::int32_t>(at); };
    }
    return step;
}

}  // namespace dlprim
