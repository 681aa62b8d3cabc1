#include <algorithm>
#include <numeric>
#include <utility>

#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

// Rows of a kernel call when they can be cut anywhere: long enough that fetching B is paid for.
constexpr std::array<std::int64_t, 4> kRowSteps = {28, 56, 112, 224};
// Equal parts of rows are whole multiples of this, so that products of many heights share kernels.
constexpr std::int64_t kRowsApart = 4;
constexpr std::array<std::int64_t, 4> kBlocksTogether = {2, 4, 8, 16};

void add_once(std::vector<std::int64_t>& steps, std::int64_t step) {
    if (std::find(steps.begin(), steps.end(), step) == steps.end()) steps.push_back(step);
}

// Enumerates orders of the loops that have more than one iteration, and the steps of their last
// levels; everything that is no sum may be shared by threads.
class Search {
public:
    // For the cheapest alone, or for all.
    Search(const Contraction& contraction, const Machine& machine, bool one)
        : contraction_(contraction),
          machine_(machine),
          one_(one),
          steps_(contraction.loops.size()) {
        for (std::size_t i = 0; i < contraction.loops.size(); ++i) last_steps(i);
    }

    std::vector<std::pair<double, Schedule>> run() {
        std::vector<std::int64_t> chosen(steps_.size());
        choose(0, chosen);
        std::stable_sort(found_.begin(), found_.end(), [](const auto& left, const auto& right) {
            return left.first < right.first;
        });
        return std::move(found_);
    }

private:
    void last_steps(std::size_t loop) {
        const int index = static_cast<int>(loop);
        const std::int64_t extent = std::max<std::int64_t>(contraction_.loops[loop].extent, 1);
        std::vector<std::int64_t>& steps = steps_[loop];
        if (index == contraction_.rows.loop && contraction_.rows.unit == 1) {
            for (const std::int64_t step : kRowSteps) {
                add_once(steps, equal_step(extent, step, step == 28 ? 7 : 14));
                add_once(steps, equal_step(extent, step, kRowsApart));
            }
        } else if (index == contraction_.batch.loop || index == contraction_.entry_loop) {
            steps.push_back(extent);
            if (contraction_.sums_at_once()) return;
            for (std::int64_t parts = 2; parts <= extent && parts <= 16; parts *= 2) {
                add_once(steps, equal_step(extent, (extent + parts - 1) / parts, 1));
            }
            add_once(steps, 1);
        } else {
            steps.push_back(1);
        }
    }

    void choose(std::size_t loop, std::vector<std::int64_t>& chosen) {
        if (loop == steps_.size()) {
            if (gathers(chosen)) orders(chosen);
            return;
        }
        for (const std::int64_t step : steps_[loop]) {
            chosen[loop] = step;
            choose(loop + 1, chosen);
        }
    }

    // Parts of the entry loop are gathered for one index of the batch loop at a time.
    bool gathers(const std::vector<std::int64_t>& chosen) const {
        const int entry = contraction_.entry_loop;
        if (entry < 0) return true;
        return chosen[static_cast<std::size_t>(entry)] >= contraction_.loop_at(entry).extent ||
               chosen[static_cast<std::size_t>(contraction_.batch.loop)] == 1;
    }

    void orders(const std::vector<std::int64_t>& chosen) {
        std::vector<std::size_t> moving;
        std::vector<Level> still;
        for (std::size_t i = 0; i < chosen.size(); ++i) {
            if (chosen[i] < contraction_.loops[i].extent) {
                moving.push_back(i);
            } else {
                still.push_back(level(i, chosen[i]));
            }
        }
        Schedule schedule;
        do {
            schedule.levels.clear();
            for (const std::size_t i : moving) schedule.levels.push_back(level(i, chosen[i]));
            schedule.levels.insert(schedule.levels.end(), still.begin(), still.end());
            weigh(schedule);
            blocked(schedule, moving.size());
        } while (std::next_permutation(moving.begin(), moving.end()));
    }

    // Several indices of the outermost loop together, so that what lies below is used for all.
    void blocked(const Schedule& schedule, std::size_t moving) {
        if (moving < 3 || schedule.levels[0].step != 1) return;
        const Level outer = schedule.levels[0];
        for (const std::int64_t together : kBlocksTogether) {
            if (together >= contraction_.loop_at(contraction_.loop_of(outer.letter)).extent) break;
            Schedule twice = schedule;
            twice.levels[0].step = together;
            for (std::size_t place = 2; place <= moving; ++place) {
                Schedule candidate = twice;
                candidate.levels.insert(
                    candidate.levels.begin() + static_cast<std::ptrdiff_t>(place), outer);
                weigh(candidate);
            }
        }
    }

    Level level(std::size_t loop, std::int64_t step) const {
        const ContractionLoop& it = contraction_.loops[loop];
        return {it.letter, step, !it.sum};
    }

    void weigh(const Schedule& schedule) {
        const double cost = schedule_cost(contraction_, schedule, machine_);
        if (!one_ || found_.empty()) {
            found_.emplace_back(cost, schedule);
        } else if (cost < found_.front().first) {
            found_.front() = {cost, schedule};
        }
    }

    const Contraction& contraction_;
    const Machine& machine_;
    bool one_;
    std::vector<std::vector<std::int64_t>> steps_;  // of the last level of each loop
    std::vector<std::pair<double, Schedule>> found_;
};

}  // namespace

std::vector<Schedule> ranked_schedules(const Contraction& contraction, const Machine& machine,
                                       int count) {
    std::vector<Schedule> ranked;
    for (auto& [cost, schedule] : Search(contraction, machine, count == 1).run()) {
        if (static_cast<int>(ranked.size()) >= count) break;
        if (std::find(ranked.begin(), ranked.end(), schedule) == ranked.end()) {
            ranked.push_back(std::move(schedule));
        }
    }
    return ranked;
}

}  // namespace dlprim
