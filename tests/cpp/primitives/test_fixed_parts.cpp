#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/nest/fixed_parts.h"
#include "primitives/reorder/pack.h"

namespace dlprim {
namespace {

// What parts add: numbers whose sum depends on the order of the additions.
float addend(std::int64_t part, std::int64_t element) {
    return 1.0F / static_cast<float>(1 + 7 * part + element % 11);
}

std::vector<float> sums_of(const FixedParts& parts, std::int64_t elements, int workers) {
    std::vector<float> result(static_cast<std::size_t>(elements));
    std::vector<char> scratch(static_cast<std::size_t>(parts.scratch_bytes() + 1));
    parts.run(result.data(), scratch.data(), workers,
              [&](std::int64_t part, float* sums, std::int64_t) {
                  for (std::int64_t i = 0; i < elements; ++i) sums[i] = addend(part, i);
              });
    return result;
}

TEST_CASE("parts are added in order, the same bits for any number of workers") {
    constexpr std::int64_t kElements = 10000;
    for (const std::int64_t count : {1, 2, 5, 8}) {
        std::vector<float> expected(kElements);
        for (std::int64_t part = 0; part < count; ++part) {
            for (std::int64_t i = 0; i < kElements; ++i) {
                float& sum = expected[static_cast<std::size_t>(i)];
                sum = part == 0 ? addend(0, i) : sum + addend(part, i);
            }
        }
        const FixedParts parts(count, kElements, DType::f32);
        CHECK(parts.scratch_bytes() == (count - 1) * aligned(4 * kElements));
        for (const int workers : {1, 2, 3}) CHECK(sums_of(parts, kElements, workers) == expected);
    }
}

TEST_CASE("a bfloat16 result is rounded once, and needs a copy for every part") {
    const FixedParts parts(3, 2, DType::bf16);
    CHECK(parts.scratch_bytes() == 3 * 64);
    std::uint16_t result[2];
    std::vector<float> scratch(3 * 16);
    // 1 + 1/256 + 1/256: each half of a bfloat16 step, together a whole one.
    parts.run(result, reinterpret_cast<char*>(scratch.data()), 2,
              [](std::int64_t part, float* sums, std::int64_t) {
                  sums[0] = part == 0 ? 1.0F : 1.0F / 256;
                  sums[1] = part == 0 ? 1.0F : 0.0F;
              });
    float wide[2];
    widen_to_f32(result, wide, 2);
    CHECK(wide[0] == 1.0F + 1.0F / 128);
    CHECK(wide[1] == 1.0F);
}

TEST_CASE("copies are added one after the other or as a tree") {
    std::vector<float> values = {1, 10, 100, 1000, 10000, 5};
    add_in_order({values.data(), 5, 1}, {0, 1});
    CHECK(values == std::vector<float>{11111, 10, 100, 1000, 10000, 5});
    for (const std::int64_t count : {1, 2, 3, 4, 5}) {
        std::vector<float> copies;
        float sum = 0;
        for (std::int64_t part = 0; part < count; ++part) {
            copies.insert(copies.end(), {static_cast<float>(1 << part), -1});
            sum += static_cast<float>(1 << part);
        }
        add_as_tree({copies.data(), count, 2}, {0, 1});
        CHECK(copies[0] == sum);
        CHECK(copies[1] == -1);
    }
}

TEST_CASE("a capital level outside of the summed loop makes parts") {
    const auto parts = [](const char* text, std::int64_t extent) {
        return sum_schedule(parse_schedule(text), {'n', extent}, 8);
    };
    CHECK(parts("N4 K c n p", 32).parts == 8);
    CHECK(to_string(parts("N4 K c n p", 32).within) == "K c n p");
    CHECK(to_string(parts("N4 K c p", 32).within) == "K c p n4");
    CHECK(parts("N4 K n", 9).parts == 3);
    CHECK(parts("N4 K n", 0).parts == 1);
    for (const char* const one : {"n4 K N", "K N4", "n", ""}) {
        CHECK(parts(one, 32).parts == 1);
        CHECK(parts(one, 32).within == parse_schedule(one));
    }
    CHECK_THROWS_WITH_AS(parts("N3 K n", 32),
                         "schedule 'N3 K n' sums loop n in 11 parts, expected at most 8",
                         std::invalid_argument);
}

TEST_CASE("even parts are as many as their level makes, and a power of two") {
    const Schedule within = parse_schedule("K c n");
    for (std::int64_t extent = 0; extent < 70; ++extent) {
        for (const std::int64_t most : {0, 1, 3, 8}) {
            const std::int64_t parts = even_parts(extent, most);
            CHECK((parts & (parts - 1)) == 0);
            CHECK(parts <= std::max<std::int64_t>(std::min(extent, most), 1));
            const SumSchedule made =
                sum_schedule(with_parts(within, {'n', extent}, parts), {'n', extent}, 8);
            CHECK(made.parts == parts);
            CHECK(made.within == within);
        }
    }
}

}  // namespace
}  // namespace dlprim
