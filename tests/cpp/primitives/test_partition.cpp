#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

TEST_CASE("blocks follow each other from 0 to the extent") {
    for (std::int64_t extent = 0; extent <= 200; ++extent) {
        for (std::int64_t size = 1; size <= 40; ++size) {
            const Blocks blocks{extent, size};
            std::int64_t end = 0;
            for (std::int64_t i = 0; i < blocks.count(); ++i) {
                const Range block = blocks.at(i);
                CHECK(block.begin == end);
                const bool last = i + 1 == blocks.count();
                CHECK((last ? block.size() >= 1 && block.size() <= size : block.size() == size));
                end = block.end;
            }
            CHECK(end == extent);
        }
    }
}

TEST_CASE("chunks follow each other from 0 to the total and are even") {
    for (std::int64_t total = 0; total <= 100; ++total) {
        for (std::int64_t parts = 1; parts <= 70; ++parts) {
            std::int64_t end = 0;
            std::int64_t smallest = total;
            std::int64_t largest = 0;
            for (std::int64_t part = 0; part < parts; ++part) {
                const Range range = chunk(total, parts, part);
                CHECK(range.begin == end);
                end = range.end;
                smallest = std::min(smallest, range.size());
                largest = std::max(largest, range.size());
            }
            CHECK(end == total);
            CHECK(largest - smallest <= 1);
        }
    }
}

TEST_CASE("totals beyond 32 bits are cut without overflow") {
    constexpr std::int64_t total = std::int64_t{1} << 50;
    CHECK(chunk(total, 3, 0).begin == 0);
    CHECK(chunk(total, 3, 2).end == total);
    CHECK(Blocks{total, 7}.at(Blocks{total, 7}.count() - 1).end == total);
}

TEST_CASE("a block may be of any size") {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t extent : {std::int64_t{1}, std::int64_t{40}, std::int64_t{1} << 60}) {
        for (const std::int64_t size : {most, most - 1, most / 2 + 1}) {
            CHECK(Blocks{extent, size}.count() == 1);
            CHECK(Blocks{extent, size}.at(0) == Range{0, extent});
        }
    }
    CHECK(Blocks{0, most}.count() == 0);
}

TEST_CASE("a list is dealt out whole, and each part has every parts-th place of it") {
    for (std::int64_t total = 0; total < 40; ++total) {
        for (const std::int64_t parts : {1, 2, 3, 7, 16}) {
            std::vector<int> times(static_cast<std::size_t>(total));
            for (std::int64_t part = 0; part < parts; ++part) {
                const Range tasks = chunk(total, parts, part);
                for (std::int64_t task = tasks.begin; task < tasks.end; ++task) {
                    const std::int64_t place = dealt(total, parts, task);
                    CHECK(place == part + (task - tasks.begin) * parts);
                    ++times.at(static_cast<std::size_t>(place));
                }
            }
            CHECK(times == std::vector<int>(static_cast<std::size_t>(total), 1));
        }
    }
}

TEST_CASE("a merged list has both lists in order, and a part of it about the same part of each") {
    for (std::int64_t first = 0; first <= 9; ++first) {
        for (std::int64_t second = first == 0 ? 1 : 0; second <= 9; ++second) {
            std::int64_t of_first = 0;
            std::int64_t of_second = 0;
            for (std::int64_t i = 0; i < first + second; ++i) {
                const Merged it = merged(first, second, i);
                CHECK(it.index == (it.is_first ? of_first : of_second));
                ++(it.is_first ? of_first : of_second);
                const std::int64_t even = (i + 1) * first / (first + second);
                CHECK(of_first == even);
            }
            CHECK(of_first == first);
            CHECK(of_second == second);
        }
    }
}

TEST_CASE("ranges compare by both ends") {
    CHECK(Range{1, 2} == Range{1, 2});
    CHECK(Range{1, 2} != Range{1, 3});
    CHECK(Range{0, 2} != Range{1, 2});
}

}  // namespace
}  // namespace dlprim
