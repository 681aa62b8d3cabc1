#include <algorithm>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "primitives/nest/loop_nest.h"

namespace dlprim {
namespace {

struct Call {
    std::int64_t task = 0;
    LoopNest::Ranges ranges = {};
};

// The contract in its plainest form: every level counts through all its iterations, and what a
// clipped range lacks is left out.
class Oracle {
public:
    Oracle(const std::vector<Loop>& loops, const Schedule& schedule)
        : loops_(loops), schedule_(schedule) {
        LoopNest::Ranges ranges = {};
        std::vector<std::int64_t> sizes;
        for (std::size_t i = 0; i < loops.size(); ++i) {
            ranges.at(i) = {0, loops[i].extent};
            sizes.push_back(loops[i].extent);
        }
        for (const Level& level : schedule.levels) {
            std::int64_t& size = sizes.at(loop_of(level));
            iterations_.push_back((size + level.step - 1) / level.step);
            size = std::min(size, level.step);
            if (level.parallel) tasks_ *= iterations_.back();
        }
        for (const Loop& loop : loops) tasks_ *= loop.extent == 0 ? 0 : 1;
        visit(0, {0, ranges});
    }

    std::int64_t tasks() const { return tasks_; }
    const std::vector<Call>& calls() const { return calls_; }

private:
    std::size_t loop_of(const Level& level) const {
        std::size_t loop = 0;
        while (loops_[loop].letter != level.letter) ++loop;
        return loop;
    }

    void visit(std::size_t depth, const Call& outer) {
        if (depth == schedule_.levels.size()) {
            calls_.push_back(outer);
            return;
        }
        const Level& level = schedule_.levels[depth];
        const std::size_t loop = loop_of(level);
        const Range range = outer.ranges.at(loop);
        for (std::int64_t i = 0; i < iterations_[depth]; ++i) {
            const std::int64_t begin = range.begin + i * level.step;
            if (begin >= range.end) break;
            Call inner = outer;
            inner.ranges.at(loop) = {begin, std::min(begin + level.step, range.end)};
            if (level.parallel) inner.task = outer.task * iterations_[depth] + i;
            visit(depth + 1, inner);
        }
    }

    std::vector<Loop> loops_;
    Schedule schedule_;
    std::vector<std::int64_t> iterations_;
    std::int64_t tasks_ = 1;
    std::vector<Call> calls_;
};

std::vector<LoopNest::Ranges> calls_of(const LoopNest& nest, Range tasks) {
    std::vector<LoopNest::Ranges> calls;
    nest.run(tasks, [&](const LoopNest::Ranges& ranges) { calls.push_back(ranges); });
    return calls;
}

std::vector<LoopNest::Ranges> expected_of(const Oracle& oracle, Range tasks) {
    std::vector<LoopNest::Ranges> calls;
    for (const Call& call : oracle.calls()) {
        if (call.task >= tasks.begin && call.task < tasks.end) calls.push_back(call.ranges);
    }
    return calls;
}

class Draw {
public:
    explicit Draw(std::uint64_t seed) : random_(seed) {}

    std::int64_t from(std::int64_t low, std::int64_t high) {
        return low +
               static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
    }

    std::vector<Loop> loops() {
        std::vector<Loop> loops;
        const std::int64_t count = from(1, 4);
        for (std::int64_t i = 0; i < count; ++i) {
            loops.push_back({"nkcp"[i], from(0, 19) == 0 ? 0 : from(1, count > 2 ? 6 : 11)});
        }
        return loops;
    }

    // Levels of all loops in any order; the steps of a loop fall from the outside in.
    Schedule schedule(const std::vector<Loop>& loops) {
        Schedule schedule;
        for (const Loop& loop : loops) {
            const std::int64_t levels = from(1, 3);
            for (std::int64_t i = 0; i < levels; ++i) {
                schedule.levels.push_back({loop.letter, 1, from(0, 2) == 0});
            }
        }
        std::shuffle(schedule.levels.begin(), schedule.levels.end(), random_);
        for (const Loop& loop : loops) {
            std::int64_t step = loop.extent + 2;
            for (Level& level : schedule.levels) {
                if (level.letter == loop.letter) level.step = step = from(1, step);
            }
        }
        return schedule;
    }

private:
    std::mt19937_64 random_;
};

std::vector<Range> ranges_of_k(std::int64_t extent, const char* schedule) {
    std::vector<Range> ranges;
    LoopNest({{'k', extent}}, parse_schedule(schedule)).run([&](const LoopNest::Ranges& all) {
        ranges.push_back(all[0]);
    });
    return ranges;
}

void check_refused(const std::vector<Loop>& loops, const Schedule& schedule, const char* message) {
    CHECK_THROWS_WITH_AS(LoopNest(loops, schedule), message, std::invalid_argument);
}

TEST_CASE("ranges are clipped to the range of the next outer level") {
    CHECK(ranges_of_k(10, "k4 k3") == std::vector<Range>{{0, 3}, {3, 4}, {4, 7}, {7, 8}, {8, 10}});
    CHECK(ranges_of_k(10, "k4") == std::vector<Range>{{0, 4}, {4, 8}, {8, 10}});
    CHECK(ranges_of_k(3, "k8 k5") == std::vector<Range>{{0, 3}});
    CHECK(ranges_of_k(2, "K") == std::vector<Range>{{0, 1}, {1, 2}});
    CHECK(ranges_of_k(1, "k9223372036854775807") == std::vector<Range>{{0, 1}});
}

TEST_CASE("any part of any nest does what the contract says, in its order") {
    Draw draw(1);
    for (int repeat = 0; repeat < 3000; ++repeat) {
        const std::vector<Loop> loops = draw.loops();
        const LoopNest nest(loops, draw.schedule(loops));
        const std::string text = to_string(nest.schedule());
        CAPTURE(text);
        REQUIRE(parse_schedule(text) == nest.schedule());
        const Oracle oracle(loops, nest.schedule());
        REQUIRE(nest.tasks() == oracle.tasks());
        for (std::int64_t parts = 1; parts <= 8; ++parts) {
            std::size_t calls = 0;
            for (std::int64_t part = 0; part < parts; ++part) {
                const Range tasks = chunk(nest.tasks(), parts, part);
                const std::vector<LoopNest::Ranges> done = calls_of(nest, tasks);
                REQUIRE(done == expected_of(oracle, tasks));
                calls += done.size();
            }
            REQUIRE(calls == oracle.calls().size());
        }
    }
}

TEST_CASE("every point of the iteration space lies in the ranges of exactly one call") {
    Draw draw(2);
    for (int repeat = 0; repeat < 300; ++repeat) {
        const std::vector<Loop> loops = {{'n', draw.from(1, 9)}, {'k', draw.from(1, 9)}};
        const LoopNest nest(loops, draw.schedule(loops));
        std::vector<int> visits(static_cast<std::size_t>(loops[0].extent * loops[1].extent));
        nest.run([&](const LoopNest::Ranges& ranges) {
            for (std::int64_t n = ranges[0].begin; n < ranges[0].end; ++n) {
                for (std::int64_t k = ranges[1].begin; k < ranges[1].end; ++k) {
                    ++visits.at(static_cast<std::size_t>(n * loops[1].extent + k));
                }
            }
        });
        CHECK(visits == std::vector<int>(visits.size(), 1));
    }
}

// The outermost level of a loop with several iterations.
std::int64_t step_of_pieces(const LoopNest& nest, std::size_t loop) {
    for (const Level& level : nest.schedule().levels) {
        if (level.letter != nest.loops()[loop].letter) continue;
        if (level.step < nest.loops()[loop].extent) return level.step;
    }
    return 1;
}

TEST_CASE("parts that share one loop do all calls once, each in the order of the schedule") {
    Draw draw(3);
    int shared = 0;
    for (int repeat = 0; repeat < 4000; ++repeat) {
        const std::vector<Loop> loops = draw.loops();
        LoopNest nest(loops, draw.schedule(loops));
        std::vector<LoopNest::Ranges> left = calls_of(nest, {0, nest.tasks()});
        const auto loop = static_cast<std::size_t>(draw.from(0, std::ssize(loops) - 1));
        const std::int64_t tasks = nest.tasks_by(loop);
        if (tasks == 0) continue;
        nest.number_by(loop);
        ++shared;
        CHECK(nest.tasks() == tasks);
        CHECK(nest.outermost_shared() == loop);
        CHECK(nest.tasks_by(loop) == 0);
        CAPTURE(to_string(nest.schedule()));
        CHECK(calls_of(nest, {0, nest.tasks()}) == left);
        const std::int64_t parts = draw.from(1, 8), step = step_of_pieces(nest, loop);
        std::int64_t reached = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
            std::int64_t last = reached;
            auto from = left.begin();
            for (const LoopNest::Ranges& call : calls_of(nest, chunk(nest.tasks(), parts, part))) {
                from = std::find(from, left.end(), call);
                REQUIRE(from != left.end());
                from = left.erase(from);
                CHECK(call[loop].begin / step >= reached);
                last = std::max(last, call[loop].begin / step);
            }
            reached = last;
        }
        CHECK(left.empty());
    }
    CHECK(shared > 200);
}

TEST_CASE("what stands around a loop that numbers tasks is shared, what is inside is not") {
    const std::vector<Loop> loops = {{'n', 6}, {'k', 4}};
    for (const auto& [schedule, tasks] : {std::pair{"K n", 0},
                                          {"K N2 n", 0},
                                          {"K N6", 0},
                                          {"K N4", 0},
                                          {"N K", 6},
                                          {"K N2 N", 12}}) {
        CHECK(LoopNest(loops, parse_schedule(schedule)).tasks_by(0) == tasks);
    }
    LoopNest nest(loops, parse_schedule("K N"));
    CHECK(nest.outermost_shared() == 1);
    nest.number_by(0);
    CHECK(nest.tasks() == 24);
    CHECK(calls_of(nest, {0, 4}) ==
          std::vector{LoopNest::Ranges{{{0, 1}, {0, 1}}}, LoopNest::Ranges{{{0, 1}, {1, 2}}},
                      LoopNest::Ranges{{{0, 1}, {2, 3}}}, LoopNest::Ranges{{{0, 1}, {3, 4}}}});
}

TEST_CASE("levels that are not parallel run in full in every part") {
    const LoopNest nest({{'n', 2}, {'k', 3}, {'c', 5}}, parse_schedule("c2 N K c"));
    CHECK(nest.tasks() == 6);
    CHECK(calls_of(nest, {0, 6}).size() == 30);
    const std::vector<LoopNest::Ranges> calls = calls_of(nest, {4, 5});
    REQUIRE(calls.size() == 5);
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const auto c = static_cast<std::int64_t>(i);
        CHECK(calls[i] == LoopNest::Ranges{{{1, 2}, {1, 2}, {c, c + 1}}});
    }
}

TEST_CASE("a task that a ragged range lacks does nothing") {
    const LoopNest nest({{'k', 5}}, parse_schedule("K4 K2"));
    CHECK(nest.tasks() == 4);
    CHECK(calls_of(nest, {0, 4}).size() == 3);
    CHECK(calls_of(nest, {2, 3}) == std::vector{LoopNest::Ranges{{{4, 5}}}});
    CHECK(calls_of(nest, {3, 4}).empty());
}

TEST_CASE("a nest without parallel levels is one task") {
    const LoopNest nest({{'n', 3}}, parse_schedule("n"));
    CHECK(nest.tasks() == 1);
    CHECK(calls_of(nest, {0, 1}).size() == 3);
    CHECK(calls_of(nest, {1, 2}).empty());
}

TEST_CASE("an extent of 0 leaves nothing to do") {
    for (const char* schedule : {"n k", "N k", "n K", "K4 N k2"}) {
        for (const std::int64_t n : {0, 3}) {
            const LoopNest nest({{'n', n}, {'k', 0}}, parse_schedule(schedule));
            CHECK(nest.tasks() == 0);
            CHECK(calls_of(nest, {0, 1}).empty());
        }
    }
}

TEST_CASE("counts beyond 32 bits are exact") {
    const std::int64_t extent = (std::int64_t{1} << 40) + 1;
    const LoopNest nest({{'n', extent}, {'k', 8}}, parse_schedule("N1024 n K"));
    CHECK(nest.tasks() == ((std::int64_t{1} << 30) + 1) * 8);
    CHECK(calls_of(nest, {nest.tasks() - 1, nest.tasks()}) ==
          std::vector{LoopNest::Ranges{{{extent - 1, extent}, {7, 8}}}});
}

TEST_CASE("schedules are printed in one form and parsed from several") {
    const Schedule schedule{
        {{'k', 4, true}, {'n', 1, false}, {'c', 8, false}, {'p', 1, false}, {'k', 1, true}}};
    CHECK(to_string(schedule) == "K4 n c8 p K");
    for (const char* text : {"K4 n c8 p K", "K4nc8pK", "  K4  n1 c08 pK1 "}) {
        CHECK(parse_schedule(text) == schedule);
    }
    CHECK(to_string(Schedule{}).empty());
    CHECK(parse_schedule("") == Schedule{});
}

TEST_CASE("a text that is no schedule is quoted in the error") {
    const auto check_error = [](const char* text, const char* message) {
        CHECK_THROWS_WITH_AS(parse_schedule(text), message, std::invalid_argument);
    };
    check_error("K4 ?c",
                "The schedule \"K4 ?c\" has '?' at position 3, expected the letter of a loop.");
    check_error("K 4",
                "The schedule \"K 4\" has '4' at position 2, expected the letter of a loop.");
    check_error("n-2",
                "The schedule \"n-2\" has '-' at position 1, expected the letter of a loop.");
    check_error("n k0",
                "The schedule \"n k0\" has the step 0 at position 3, expected an integer from 1 to "
                "2^63 - 1.");
    check_error("n9223372036854775808",
                "The schedule \"n9223372036854775808\" has the step 9223372036854775808 at "
                "position 1, expected an integer from 1 to 2^63 - 1.");
}

TEST_CASE("schedules that do not fit the loops are refused") {
    const std::vector<Loop> loops = {{'n', 4}, {'k', 8}};
    check_refused(loops, parse_schedule("n"),
                  "The schedule \"n\" has no level for the loop 'k', expected at least one.");
    check_refused(loops, parse_schedule("n C k"),
                  "The schedule \"n C k\" has a level 'c', expected one of the loops \"nk\".");
    check_refused(loops, parse_schedule("k2 n k4"),
                  "The schedule \"k2 n k4\" has the step 4 inside the step 2 of the loop 'k', "
                  "expected a step that is not larger.");
    check_refused(loops, {{{'n', 1, false}, {'k', 0, true}}},
                  "The schedule \"n K0\" has the step 0 for the loop 'k', expected at least 1.");
    check_refused(loops, parse_schedule("nnnnnnnnnnnnnnnnk"),
                  "The schedule has 17 levels, expected at most 16.");
    check_refused({{'n', std::int64_t{1} << 40}, {'k', std::int64_t{1} << 40}},
                  parse_schedule("n k"),
                  "The schedule \"n k\" has more iterations than a 64-bit integer can count, "
                  "expected at most 2^63 - 1.");
}

TEST_CASE("loops that make no nest are refused") {
    check_refused({{'n', 4}, {'n', 8}}, parse_schedule("n"),
                  "The nest has two loops 'n', expected a letter of its own for each.");
    check_refused({{'N', 4}}, parse_schedule("n"),
                  "The nest has a loop 'N', expected a letter from a to z.");
    check_refused({{'n', -1}}, parse_schedule("n"),
                  "The loop 'n' has the extent -1, expected an integer from 0 to 2^60.");
    check_refused(std::vector<Loop>(9), parse_schedule("n"),
                  "The nest has 9 loops, expected at most 8.");
}

}  // namespace
}  // namespace dlprim
