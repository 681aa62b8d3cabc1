// Compiled once per target, as per_isa.h describes.
#include "primitives/linear/narrow_product.h"

#include <algorithm>
#include <cstdint>

#include "jit/machine.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/linear/narrow_product.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "primitives/tensor/channel_vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

// Rows whose sums are held on the stack.
constexpr std::int64_t kStackRows = 32;
// Products of a task, at least: fewer take less time than a thread needs to begin.
constexpr std::int64_t kTaskProducts = 1 << 16;
// Vectors that share what is loaded of as many rows as leave registers for both, each pair a chain
// of additions of its own. A single one leaves room for more rows: so many streams from memory.
constexpr std::int64_t kVectorsTogether = 4;
constexpr bool kHasManyRegisters = HWY_TARGET <= HWY_AVX3;
constexpr std::int64_t kManyStreams = 6;
template <std::int64_t kVectors>
constexpr std::int64_t kRowsTogether = kHasManyRegisters ? 4
                                       : kVectors == 1   ? kManyStreams
                                       : kVectors < 4    ? 4
                                                         : 2;
// Bytes in front of what a row reads that are fetched: hardware follows a few rows late, and memory
// is far away.
constexpr std::int64_t kFetchAhead = 2048;

// Columns of one block, of rows and vectors one behind the other.
template <class Element>
struct Block {
    std::int64_t columns;
    const Element* matrix;
    std::int64_t row_step;
    const float* vectors;
    std::int64_t vector_step;
    bool fetches_many;  // where as many rows are streamed as a machine may follow by itself
};

// Adds to sums[row][vector].
template <std::int64_t kRows, std::int64_t kVectors, class Element>
HWY_INLINE void add_products(const Block<Element>& it, float* sums) {
    using Channels = ChannelVector<Element>;
    constexpr std::int64_t size_of_element = sizeof(Element);
    Channels products[kRows][kVectors];
    for (auto& row : products) {
        for (Channels& each : row) each = Channels::zero();
    }
    const auto step = [&](std::int64_t i, auto part) {
        Channels vectors[kVectors];
        for (std::int64_t v = 0; v < kVectors; ++v) {
            vectors[v] = Channels::load_floats(it.vectors + v * it.vector_step + i, part);
        }
        for (std::int64_t row = 0; row < kRows; ++row) {
            const Channels elements = Channels::load(it.matrix + row * it.row_step + i, part);
            for (std::int64_t v = 0; v < kVectors; ++v) {
                products[row][v].multiply_add(elements, vectors[v]);
            }
        }
    };
    constexpr std::int64_t line = std::max(kCacheLineBytes / size_of_element, Channels::kChannels);
    const std::int64_t fetched_rows = kRows < kManyStreams || it.fetches_many ? kRows : 0;
    std::int64_t i = 0;
    for (; i + line <= it.columns; i += line) {
        for (std::int64_t row = 0; row < fetched_rows; ++row) {
            prefetch<1>(it.matrix + row * it.row_step + i + kFetchAhead / size_of_element, 0);
        }
        for (std::int64_t j = i; j < i + line; j += Channels::kChannels) step(j, All());
    }
    for (; i + Channels::kChannels <= it.columns; i += Channels::kChannels) step(i, All());
    if (i < it.columns) step(i, First{it.columns - i});
    for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t v = 0; v < kVectors; ++v) {
            sums[row * kVectors + v] += products[row][v].total();
        }
    }
}

template <std::int64_t kVectors, class Element>
void add_block(Block<Element> it, std::int64_t rows, float* sums) {
    std::int64_t row = 0;
    const auto take = [&](auto together) {
        for (; row + together() <= rows; row += together()) {
            add_products<together(), kVectors>(it, sums + row * kVectors);
            it.matrix += together() * it.row_step;
        }
    };
    constexpr std::int64_t most = kRowsTogether<kVectors>;
    take(std::integral_constant<std::int64_t, most>());
    take(std::integral_constant<std::int64_t, std::min<std::int64_t>(most, 4)>());
    take(std::integral_constant<std::int64_t, 1>());
}

void round_to(float value, float* dst) { *dst = value; }
void round_to(float value, std::uint16_t* dst) { *dst = rounded_to_half(value); }

template <std::int64_t kVectors>
void start_from_bias(const NarrowProduct& it, Range rows, std::int64_t first, float* sums) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        for (std::int64_t v = first; v < first + kVectors; ++v) {
            *sums++ = it.bias[row * it.bias_row_step + v * it.bias_vector_step];
        }
    }
}

// Of kVectors vectors from `first` on.
template <std::int64_t kVectors, class Element>
void multiply(const NarrowProduct& it, Range rows, std::int64_t first) {
    float sums[kStackRows * kVectors] = {};
    if (it.bias != nullptr) start_from_bias<kVectors>(it, rows, first, sums);
    const Blocks blocks{it.columns, it.block};
    for (std::int64_t index = 0; index < blocks.count(); ++index) {
        const Range columns = blocks.at(index);
        add_block<kVectors, Element>(
            {columns.size(),
             static_cast<const Element*>(it.matrix) + rows.begin * it.row_step +
                 index * it.block_step,
             it.row_step, it.vectors + first * it.vector_step + columns.begin, it.vector_step,
             !this_machine().follows_many_streams},
            rows.size(), sums);
    }
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
        for (std::int64_t v = first; v < first + kVectors; ++v) {
            round_to(
                sums[(row - rows.begin) * kVectors + v - first],
                static_cast<Element*>(it.out) + row * it.out_row_step + v * it.out_vector_step);
        }
    }
}

// Groups of vectors within a few rows, which stay in the caches.
template <class Element>
void multiply_rows(const NarrowProduct& it, Range rows) {
    std::int64_t first = 0;
    const auto take = [&](auto count) {
        for (; first + count() <= it.vector_count; first += count()) {
            multiply<count(), Element>(it, rows, first);
        }
    };
    take(std::integral_constant<std::int64_t, kVectorsTogether>());
    take(std::integral_constant<std::int64_t, 3>());
    take(std::integral_constant<std::int64_t, 2>());
    take(std::integral_constant<std::int64_t, 1>());
}

template <class Element>
void run(const NarrowProduct& it) {
    const std::int64_t products = std::max<std::int64_t>(it.columns * it.vector_count, 1);
    const Blocks tasks{it.rows, std::max(kStackRows, kTaskProducts / products)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range rows = tasks.at(task);
        for (std::int64_t begin = rows.begin; begin < rows.end; begin += kStackRows) {
            multiply_rows<Element>(it, {begin, std::min(begin + kStackRows, rows.end)});
        }
    });
}

auto product_of(DType dtype) { return dtype == DType::f32 ? run<float> : run<std::uint16_t>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {

void narrow_product(const NarrowProduct& product) {
    DLPRIM_FOR_ISA(usable_isa(), product_of)(product.dtype)(product);
}

}  // namespace dlprim
#endif
