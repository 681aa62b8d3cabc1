#include "primitives/layers/dropout.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

// Philox's multipliers and the increments of its key.
constexpr std::uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;
// Words of one counter, and neighbouring counters of a group of elements.
constexpr int kWords = 4;
constexpr std::int64_t kCounters = kDropoutGroup / kWords;

constexpr std::int64_t kTaskGroups = 256;

float word(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// A row is a group, and its columns are counters: an operand for each word of them.
RowSpec program_of(DType dtype) {
    RowBuilder row;
    RowValue c0 = row.column(), c1 = row.scalar(), c2 = row.scalar(), c3 = row.scalar();
    RowValue key0 = row.scalar(), key1 = row.scalar();
    const RowValue threshold = row.scalar(), scale = row.scalar();
    const RowValue first = row.scalar();
    c0 = add_words(c0, add_words(first, row.per_row()));
    for (int round = 0; round < kRounds; ++round) {
        const RowValue m0 = word(kMultiplier0), m1 = word(kMultiplier1);
        const RowValue from1 = c1, from3 = c3;
        c1 = low_product(c2, m1);
        c3 = low_product(c0, m0);
        const RowValue upper = high_product(c0, m0);
        c0 = exclusive_or(high_product(c2, m1), from1, key0);
        c2 = exclusive_or(upper, from3, key1);
        key0 = add_words(key0, word(kWeyl0));
        key1 = add_words(key1, word(kWeyl1));
    }
    for (const RowValue random : {c0, c1, c2, c3}) {
        const RowValue x = row.tensor(dtype);
        row.store(dtype, select(words_at_least(random, threshold), x * scale, 0.0F));
    }
    return row.spec();
}

const RowKernel& kernel_of(DType dtype) {
    static const std::array all{row_kernel(program_of(DType::f32)),
                                row_kernel(program_of(DType::bf16))};
    return *all[dtype == DType::f32 ? 0 : 1];
}

// What the program calls float32: counters of a group and of groups.
struct Counters {
    std::array<std::uint32_t, kCounters> of_group;
    std::array<std::uint32_t, kTaskGroups> of_task;
};

const Counters& counters() {
    static const Counters all = [] {
        Counters made{};
        for (std::uint32_t i = 0; i < kCounters; ++i) made.of_group.at(i) = i;
        for (std::uint32_t i = 0; i < kTaskGroups; ++i) made.of_task.at(i) = i * kCounters;
        return made;
    }();
    return all;
}

// Groups from `first` on, of one task.
void drop(const Dropout& it, DType dtype, Range groups, const char* src, char* out) {
    const auto low = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
    const auto first = static_cast<std::uint64_t>(groups.begin * kCounters);
    std::array numbers{low(first >> 32),
                       low(it.offset),
                       low(it.offset >> 32),
                       low(it.seed),
                       low(it.seed >> 32),
                       low(it.threshold),
                       std::bit_cast<std::uint32_t>(it.scale),
                       low(first)};
    RowArgs args{.rows = groups.size(), .columns = kCounters};
    std::size_t operand = 0;
    const auto constant = [](const std::uint32_t* data) {
        return const_cast<std::uint32_t*>(data);
    };
    args.operands.at(operand++).data = constant(counters().of_group.data());
    for (std::uint32_t& number : numbers) args.operands.at(operand++).data = &number;
    args.operands.at(operand++) = {constant(counters().of_task.data()), size_of(DType::f32)};
    const std::int64_t bytes = kCounters * size_of(dtype);
    for (int i = 0; i < kWords; ++i) {
        args.operands.at(operand++) = {const_cast<char*>(src) + i * bytes, kWords * bytes};
        args.operands.at(operand++) = {out + i * bytes, kWords * bytes};
    }
    kernel_of(dtype)(args);
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t x = std::uint64_t{kMultiplier0} * counter[0];
        const std::uint64_t y = std::uint64_t{kMultiplier1} * counter[2];
        counter = {static_cast<std::uint32_t>(y >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(y),
                   static_cast<std::uint32_t>(x >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(x)};
        key[0] += kWeyl0;
        key[1] += kWeyl1;
    }
    return counter;
}

void run_dropout(const Dropout& dropout, DType dtype, std::int64_t count, const void* src,
                 void* out) {
    const std::int64_t element = size_of(dtype), group = kDropoutGroup * element;
    const auto* const from = static_cast<const char*>(src);
    auto* const to = static_cast<char*>(out);
    if (dropout.threshold >> 32 != 0) {
        std::memset(to, 0, static_cast<std::size_t>(count * element));
        return;
    }
    const std::int64_t whole = count / kDropoutGroup, rest = count % kDropoutGroup * element;
    const Blocks tasks{whole, kTaskGroups};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const std::int64_t first = tasks.at(task).begin * group;
        drop(dropout, dtype, tasks.at(task), from + first, to + first);
    });
    if (rest == 0) return;
    std::array<char, kDropoutGroup * sizeof(float)> last{};
    std::memcpy(last.data(), from + whole * group, static_cast<std::size_t>(rest));
    drop(dropout, dtype, {whole, whole + 1}, last.data(), last.data());
    std::memcpy(to + whole * group, last.data(), static_cast<std::size_t>(rest));
}

}  // namespace dlprim
