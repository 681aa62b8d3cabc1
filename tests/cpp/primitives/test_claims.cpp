#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/tensor/claims.h"

namespace dlprim {
namespace {

struct Claimed {
    int seat;
    Range tasks;
};

// All claims of a loop whose threads come as `next_seat` says.
std::vector<Claimed> claims_of(std::int64_t tasks, int seats, const std::function<int()>& next_seat,
                               TaskOrder order = TaskOrder::ascending) {
    Claims claims;
    claims.reset(tasks, seats, order);
    std::vector<Claimed> made;
    for (std::vector<bool> done(static_cast<std::size_t>(seats));
         std::ranges::count(done, false) > 0;) {
        const int seat = next_seat();
        const Range range = claims.next(seat);
        if (range.size() > 0) {
            made.push_back({seat, range});
        } else {
            done[static_cast<std::size_t>(seat)] = true;
        }
    }
    return made;
}

bool covers_once(const std::vector<Claimed>& claims, std::int64_t tasks) {
    std::vector<int> times(static_cast<std::size_t>(tasks));
    for (const Claimed& it : claims) {
        for (std::int64_t task = it.tasks.begin; task < it.tasks.end; ++task) {
            ++times.at(static_cast<std::size_t>(task));
        }
    }
    return std::ranges::all_of(times, [](int count) { return count == 1; });
}

TEST_CASE("every task is claimed once, in whatever order the threads come") {
    std::mt19937 random(0);
    for (const std::int64_t tasks : {0, 1, 2, 7, 8, 15, 16, 17, 64, 1000}) {
        for (const int seats : {1, 2, 3, 16, 40}) {
            for (const TaskOrder order : {TaskOrder::ascending, TaskOrder::descending}) {
                std::uniform_int_distribution<int> any(0, seats - 1);
                CHECK(covers_once(
                    claims_of(tasks, seats, [&] { return any(random); }, order), tasks));
            }
        }
    }
}

TEST_CASE("threads that come in turn have the range that is theirs in every loop") {
    for (const std::int64_t tasks : {16, 48, 1024}) {
        for (const TaskOrder order : {TaskOrder::ascending, TaskOrder::descending}) {
            int turn = 0;
            for (const Claimed& it : claims_of(tasks, 4, [&] { return turn++ % 4; }, order)) {
                const Range own = chunk(tasks, 4, it.seat);
                CHECK((it.tasks.begin >= own.begin && it.tasks.end <= own.end));
            }
        }
    }
}

TEST_CASE("a thread goes through its own range in order and takes the far ends of the others'") {
    Claims claims;
    claims.reset(16, 2);
    for (std::int64_t i = 0; i < 8; ++i) CHECK(claims.next(0) == Range{i, i + 1});
    CHECK(claims.next(0) == Range{15, 16});
    CHECK(claims.next(1) == Range{8, 9});
    CHECK(claims.next(0) == Range{14, 15});
    claims.reset(16, 2, TaskOrder::descending);
    for (std::int64_t i = 8; i > 0; --i) CHECK(claims.next(0) == Range{i - 1, i});
    CHECK(claims.next(0) == Range{8, 9});
    CHECK(claims.next(1) == Range{15, 16});
}

TEST_CASE("a range is claimed in at most eight pieces, as equal as can be") {
    Claims claims;
    claims.reset(2 * 1001, 2);
    std::int64_t least = 1001, most = 0, pieces = 0;
    for (Range it = claims.next(0); it.end <= 1001; it = claims.next(0), ++pieces) {
        least = std::min(least, it.size());
        most = std::max(most, it.size());
    }
    CHECK(pieces == Claims::kMostPieces);
    CHECK(most - least <= 1);
}

TEST_CASE("tasks beyond 32 bits are counted") {
    Claims claims;
    const std::int64_t many = std::int64_t{1} << 40;
    claims.reset(many, 3);
    std::int64_t sum = 0;
    for (Range it = claims.next(2); it.size() > 0; it = claims.next(2)) sum += it.size();
    CHECK(sum == many);
}

TEST_CASE("what is cleared is claimed by nobody") {
    Claims claims;
    claims.reset(100, 4);
    claims.next(3);
    claims.clear();
    for (int seat = 0; seat < 4; ++seat) CHECK(claims.next(seat).size() == 0);
}

}  // namespace
}  // namespace dlprim
