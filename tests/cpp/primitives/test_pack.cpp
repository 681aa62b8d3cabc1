#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/reorder/pack.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using Bytes = std::vector<std::uint8_t>;

std::size_t index_of(std::int64_t index) { return static_cast<std::size_t>(index); }

// Bytes of any value, in memory of exactly this size: the sanitizers see one byte more.
Bytes random_bytes(std::int64_t size) {
    std::minstd_rand random(static_cast<std::uint32_t>(size + 1));
    Bytes bytes(index_of(size));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random() >> 8);
    return bytes;
}

// By comparing what is cut off with a half, unlike the code under test, which adds.
std::uint16_t rounded(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto truncated = static_cast<std::uint16_t>(bits >> 16);
    if (std::isnan(value)) return truncated | 0x40;
    const auto upper = static_cast<std::uint16_t>(truncated + 1);
    const std::uint32_t rest = bits & 0xffff;
    if (rest == 0x8000) return (truncated & 1) == 0 ? truncated : upper;
    return rest < 0x8000 ? truncated : upper;
}

struct Types {
    DType from;
    DType to;
};

constexpr Types kTypes[] = {{DType::f32, DType::f32},
                            {DType::f32, DType::bf16},
                            {DType::bf16, DType::bf16},
                            {DType::s8, DType::s8}};

// The bytes of the element that belongs at row k of column n.
void put_expected(const Packing& packing, std::int64_t k, std::int64_t n, std::uint8_t* dst) {
    const std::int64_t element =
        packing.transposed ? n * packing.ld_src + k : k * packing.ld_src + n;
    const char* src = static_cast<const char*>(packing.src) + element * size_of(packing.from);
    if (packing.from == packing.to) {
        std::memcpy(dst, src, index_of(size_of(packing.from)));
        return;
    }
    float value = 0;
    std::memcpy(&value, src, sizeof value);
    const std::uint16_t half = rounded(value);
    std::memcpy(dst, &half, sizeof half);
}

constexpr std::uint8_t kUntouched = 0xA5;

// Packs two matrices with gaps between rows and compares every byte of the destination.
void check(const Types& types, std::int64_t k, std::int64_t n, bool transposed) {
    const std::int64_t group = elements_per_word(types.to), rows = (k + group - 1) / group;
    const std::int64_t ld_src = (transposed ? k : n) + 3, ld_dst = n + 2;
    const std::int64_t src_bytes = (transposed ? n : k) * ld_src * size_of(types.from);
    const std::int64_t dst_bytes = rows * ld_dst * 4;
    const Bytes src = random_bytes(2 * src_bytes);
    Bytes dst(index_of(2 * dst_bytes), kUntouched), expected = dst;
    Packing packing{.from = types.from,
                    .to = types.to,
                    .k = k,
                    .n = n,
                    .transposed = transposed,
                    .src = src.data(),
                    .ld_src = ld_src,
                    .dst = dst.data(),
                    .ld_dst = ld_dst,
                    .batch = 2,
                    .stride_src = src_bytes,
                    .stride_dst = dst_bytes};
    pack_b(packing);
    for (int matrix = 0; matrix < 2; ++matrix) {
        packing.src = src.data() + matrix * src_bytes;
        for (std::int64_t row = 0; row < rows * group; ++row) {
            for (std::int64_t column = 0; column < n; ++column) {
                std::uint8_t* at = expected.data() + matrix * dst_bytes +
                                   (row / group * ld_dst + column) * 4 +
                                   row % group * size_of(types.to);
                std::fill_n(at, size_of(types.to), std::uint8_t{0});
                if (row < k) put_expected(packing, row, column, at);
            }
        }
    }
    CAPTURE(k);
    CAPTURE(n);
    CAPTURE(transposed);
    CAPTURE(name_of(types.to));
    CHECK(dst == expected);
}

TEST_CASE("every type, orientation and tail") {
    for (const Types& types : kTypes) {
        for (const std::int64_t k : {1, 2, 3, 4, 7, 15, 16, 17, 33, 34, 67, 131}) {
            for (const std::int64_t n : {1, 2, 3, 5, 8, 15, 16, 17, 33, 64, 67, 131}) {
                for (const bool transposed : {false, true}) check(types, k, n, transposed);
            }
        }
    }
}

TEST_CASE("matrices that are cut into tasks, for any number of threads") {
    const int before = num_threads();
    for (const int threads : {1, 2, 3, 4}) {
        set_num_threads(threads);
        for (const Types& types : kTypes) {
            for (const bool transposed : {false, true}) check(types, 517, 701, transposed);
        }
    }
    set_num_threads(before);
}

TEST_CASE("rounding and widening of every bfloat16 and its neighbours") {
    std::vector<float> values;
    for (std::uint32_t half = 0; half < 0x10000; ++half) {
        for (const std::uint32_t rest : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
            values.push_back(std::bit_cast<float>(half << 16 | rest));
        }
    }
    std::vector<std::uint16_t> halves(values.size());
    round_to_bf16(values.data(), halves.data(), static_cast<std::int64_t>(values.size()));
    std::vector<float> wide(values.size());
    widen_to_f32(halves.data(), wide.data(), static_cast<std::int64_t>(values.size()));
    int wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto bits = static_cast<std::uint32_t>(halves[i]) << 16;
        wrong += halves[i] != rounded(values[i]) || std::bit_cast<std::uint32_t>(wide[i]) != bits;
    }
    CHECK(wrong == 0);
}

TEST_CASE("nothing to do, and what cannot be done") {
    pack_b({.k = 0, .n = 5});
    pack_b({.k = 5, .n = 0, .transposed = true});
    pack_b({.k = 5, .n = 5, .batch = 0});
    round_to_bf16(nullptr, nullptr, 0);
    CHECK_THROWS_WITH_AS(pack_b({.from = DType::bf16, .to = DType::s8}),
                         "B cannot be packed from bfloat16 to int8", std::invalid_argument);
    CHECK_THROWS_AS(pack_b({.from = DType::s32, .to = DType::s32}), std::invalid_argument);
}

}  // namespace
}  // namespace dlprim
