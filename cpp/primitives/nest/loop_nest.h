// A nest of loops as data. What a primitive computes fixes its logical loops (letter, extent); in
// which order they are nested, in what steps, and which of them threads share is a Schedule, a
// value that can be printed, parsed, compared, stored and tuned. The nest is interpreted: a step
// costs nanoseconds, a body is a call of a generated kernel, and no compiler is needed at run
// time. (The idea of a loop string is PARLOOPER's, arXiv 2304.12576.)
//
// A schedule is a list of levels from the outside in, "K4 n c8 p K": a letter names a loop, the
// number behind it is the step of this level (1 where there is none), a letter that comes again is
// a further, finer level of blocking, and a capital letter is shared by the threads. The body gets
// for every loop the range that its innermost level has left. Extents need not be multiples of
// steps: the last range is shorter.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "primitives/tensor/partition.h"

namespace dlprim {

struct Loop {
    char letter = 'a';  // lower case
    std::int64_t extent = 0;

    friend bool operator==(const Loop&, const Loop&) = default;
};

struct Level {
    char letter = 'a';  // lower case
    std::int64_t step = 1;
    bool parallel = false;

    friend bool operator==(const Level&, const Level&) = default;
};

struct Schedule {
    std::vector<Level> levels;  // from the outside in

    friend bool operator==(const Schedule&, const Schedule&) = default;
};

// Of the innermost level of a loop, 0 without one.
std::int64_t last_step(const Schedule& schedule, char letter);

// "K4 n c8 p k"; parse_schedule(to_string(s)) == s. Blanks between levels are optional when
// parsing, and an empty text is a schedule without levels. Throws std::invalid_argument that quotes
// the text and says what was expected.
std::string to_string(const Schedule& schedule);
Schedule parse_schedule(std::string_view text);

class LoopNest {
public:
    static constexpr int kMostLoops = 8;
    static constexpr int kMostLevels = 16;
    // The ranges of one body call, indexed as `loops` of the constructor.
    using Ranges = std::array<Range, kMostLoops>;

    // Throws std::invalid_argument unless every loop has a letter of its own and at least one
    // level, every level names a loop, extents are from 0 to 2^60, steps are positive and do not
    // grow from a loop's outer level to its inner one, and all iterations can be counted.
    LoopNest(std::vector<Loop> loops, Schedule schedule);

    const std::vector<Loop>& loops() const { return loops_; }
    const Schedule& schedule() const { return schedule_; }

    // Iterations of the parallel levels taken together: what threads can share. A level counts as
    // many as it has in a full range of the next outer level of its loop; a shorter range lacks the
    // last ones, whose tasks then do less or nothing. 1 without parallel levels, 0 when an extent
    // is 0. After number_by() those of levels around its loop and of the outermost level of this.
    std::int64_t tasks() const { return tasks_; }

    // The loop whose pieces follow each other in the numbers of tasks, as threads share them: that
    // of the outermost parallel level with several iterations; loops().size() without.
    std::size_t outermost_shared() const;

    // How many tasks number_by(loop) would leave: 0 where a level of the loop is not parallel or
    // has only one iteration, the last piece would be smaller than the others, or tasks are
    // numbered by a loop already.
    std::int64_t tasks_by(std::size_t loop) const;

    // From here on tasks are numbered with the outermost level of `loop` slowest, so that parts of
    // them share this loop, whatever stands around it. tasks_by(loop) is not 0.
    void number_by(std::size_t loop);

    // Calls body(const Ranges&) in the order of the schedule for every iteration of the parallel
    // levels that lies in `tasks` (a part of [0, tasks()), collapsed with the outermost parallel
    // level, or that of number_by(), slowest). Levels that are not parallel, and those that
    // number_by() leaves out, run in full in every part. Allocates nothing; threads may run parts
    // of one nest at the same time.
    template <class Body>
    void run(Range tasks, const Body& body) const;
    template <class Body>
    void run(const Body& body) const {
        run({0, tasks_}, body);
    }

private:
    // A level that has more than one iteration; the others leave their range as it is.
    struct Cut {
        std::size_t loop = 0;
        std::int64_t step = 1;
        std::int64_t tasks = 0;        // of all iterations, 0 if tasks do not narrow them
        std::int64_t task_stride = 0;  // from an iteration to the next, 0 if not parallel
        std::int64_t slow_stride = 0;  // the same of the level that number_by() has chosen
    };
    template <class Body>
    struct Walk;

    void cut();
    std::size_t level_of(std::size_t loop) const;

    std::vector<Loop> loops_;
    Schedule schedule_;
    std::vector<Cut> cuts_;  // from the outside in
    Ranges whole_ = {};
    std::int64_t tasks_ = 0;
};

template <class Body>
struct LoopNest::Walk {
    const Cut* innermost;
    Range tasks;  // of this part
    const Body& body;
    Ranges ranges;

    // `task` is the first task of this entry into the level, one of which is in `tasks`: only the
    // two ends of a part are narrowed and divide. Where a level numbers tasks, it is the place
    // among the levels around that one, of which a part has some pieces or none.
    void enter(const Cut* level, std::int64_t task) {
        const Cut cut = *level;
        Range& range = ranges[cut.loop];
        const Range outer = range;
        Range shared = outer;
        if (cut.slow_stride != 0) {
            const auto first_behind = [&](std::int64_t end) {
                const std::int64_t before = std::max<std::int64_t>(end - task, 0);
                const std::int64_t count = (before + cut.slow_stride - 1) / cut.slow_stride;
                return std::min(outer.begin + count * cut.step, outer.end);
            };
            shared = {first_behind(tasks.begin), first_behind(tasks.end)};
        } else if (cut.tasks != 0 && (task < tasks.begin || task + cut.tasks > tasks.end)) {
            const std::int64_t skipped = std::max<std::int64_t>(tasks.begin - task, 0);
            const std::int64_t first = skipped / cut.task_stride;
            const std::int64_t last = (std::min(tasks.end - task, cut.tasks) - 1) / cut.task_stride;
            shared.begin = outer.begin + first * cut.step;
            shared.end = std::min(outer.begin + (last + 1) * cut.step, outer.end);
            task += first * cut.task_stride;
        }
        for (std::int64_t begin = shared.begin; begin < shared.end; begin += cut.step) {
            range = {begin, std::min(begin + cut.step, shared.end)};
            if (level == innermost) {
                body(std::as_const(ranges));
            } else {
                enter(level + 1, task);
            }
            task += cut.task_stride;
        }
        range = outer;
    }
};

template <class Body>
void LoopNest::run(Range tasks, const Body& body) const {
    tasks = {std::max<std::int64_t>(tasks.begin, 0), std::min(tasks.end, tasks_)};
    if (tasks.begin >= tasks.end) return;
    if (cuts_.empty()) {
        body(whole_);
        return;
    }
    Walk<Body>{&cuts_.back(), tasks, body, whole_}.enter(cuts_.data(), 0);
}

}  // namespace dlprim
