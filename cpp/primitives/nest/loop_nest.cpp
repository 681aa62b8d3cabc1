#include "primitives/nest/loop_nest.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <system_error>

namespace dlprim {
namespace {

// So that the end of a step never overflows.
constexpr std::int64_t kMostExtent = std::int64_t{1} << 60;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
char to_lower(char c) { return static_cast<char>(c - 'A' + 'a'); }
char to_upper(char c) { return static_cast<char>(c - 'a' + 'A'); }

std::string in_quotes(char c) { return std::string("'") + c + "'"; }

std::string in_quotes(const std::string& text) { return '"' + text + '"'; }

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

[[noreturn]] void refuse_at(std::string_view text, std::size_t position, const std::string& found,
                            const char* expected) {
    refuse("The schedule " + in_quotes(std::string(text)) + " has " + found + " at position " +
           std::to_string(position) + ", expected " + expected + ".");
}

// Reads the step at `position`, if there is one, and moves past it.
std::int64_t parse_step(std::string_view text, std::size_t& position) {
    if (position == text.size() || !is_digit(text[position])) return 1;
    std::int64_t step = 0;
    const char* const digits = text.data() + position;
    const auto [end, error] = std::from_chars(digits, text.data() + text.size(), step);
    if (error != std::errc{} || step < 1) {
        refuse_at(text, position, "the step " + std::string(digits, end),
                  "an integer from 1 to 2^63 - 1");
    }
    position += static_cast<std::size_t>(end - digits);
    return step;
}

std::size_t index_of(const std::vector<Loop>& loops, char letter) {
    const auto found = std::find_if(loops.begin(), loops.end(),
                                    [letter](const Loop& loop) { return loop.letter == letter; });
    return static_cast<std::size_t>(found - loops.begin());
}

void require_loops(const std::vector<Loop>& loops) {
    if (loops.size() > LoopNest::kMostLoops) {
        refuse("The nest has " + std::to_string(loops.size()) + " loops, expected at most " +
               std::to_string(LoopNest::kMostLoops) + ".");
    }
    for (std::size_t i = 0; i < loops.size(); ++i) {
        const auto [letter, extent] = loops[i];
        if (!is_lower(letter)) {
            refuse("The nest has a loop " + in_quotes(letter) + ", expected a letter from a to z.");
        }
        if (index_of(loops, letter) != i) {
            refuse("The nest has two loops " + in_quotes(letter) +
                   ", expected a letter of its own for each.");
        }
        if (extent < 0 || extent > kMostExtent) {
            refuse("The loop " + in_quotes(letter) + " has the extent " + std::to_string(extent) +
                   ", expected an integer from 0 to 2^60.");
        }
    }
}

void require_level(const std::vector<Loop>& loops, const Level& level,
                   const std::string& schedule) {
    if (index_of(loops, level.letter) == loops.size()) {
        std::string letters;
        for (const Loop& loop : loops) letters += loop.letter;
        refuse("The schedule " + schedule + " has a level " + in_quotes(level.letter) +
               ", expected one of the loops " + in_quotes(letters) + ".");
    }
    if (level.step < 1) {
        refuse("The schedule " + schedule + " has the step " + std::to_string(level.step) +
               " for the loop " + in_quotes(level.letter) + ", expected at least 1.");
    }
}

void require_levels(const std::vector<Loop>& loops, const Schedule& schedule) {
    if (schedule.levels.size() > LoopNest::kMostLevels) {
        refuse("The schedule has " + std::to_string(schedule.levels.size()) +
               " levels, expected at most " + std::to_string(LoopNest::kMostLevels) + ".");
    }
    const std::string text = in_quotes(to_string(schedule));
    std::array<std::int64_t, LoopNest::kMostLoops> outer_steps = {};  // 0: no level yet
    for (const Level& level : schedule.levels) {
        require_level(loops, level, text);
        std::int64_t& outer = outer_steps.at(index_of(loops, level.letter));
        if (outer != 0 && level.step > outer) {
            refuse("The schedule " + text + " has the step " + std::to_string(level.step) +
                   " inside the step " + std::to_string(outer) + " of the loop " +
                   in_quotes(level.letter) + ", expected a step that is not larger.");
        }
        outer = level.step;
    }
    for (std::size_t i = 0; i < loops.size(); ++i) {
        if (outer_steps.at(i) == 0) {
            refuse("The schedule " + text + " has no level for the loop " +
                   in_quotes(loops[i].letter) + ", expected at least one.");
        }
    }
}

std::int64_t ceil_div(std::int64_t size, std::int64_t step) { return (size - 1) / step + 1; }

}  // namespace

std::int64_t last_step(const Schedule& schedule, char letter) {
    std::int64_t step = 0;
    for (const Level& level : schedule.levels) {
        if (level.letter == letter) step = level.step;
    }
    return step;
}

std::string to_string(const Schedule& schedule) {
    std::string text;
    for (const Level& level : schedule.levels) {
        if (!text.empty()) text += ' ';
        text += level.parallel && is_lower(level.letter) ? to_upper(level.letter) : level.letter;
        if (level.step != 1) text += std::to_string(level.step);
    }
    return text;
}

Schedule parse_schedule(std::string_view text) {
    Schedule schedule;
    std::size_t position = 0;
    while (position < text.size()) {
        const char c = text[position];
        if (c != ' ' && !is_lower(c) && !is_upper(c)) {
            refuse_at(text, position, in_quotes(c), "the letter of a loop");
        }
        ++position;
        if (c == ' ') continue;
        const bool parallel = is_upper(c);
        const std::int64_t step = parse_step(text, position);
        schedule.levels.push_back({parallel ? to_lower(c) : c, step, parallel});
    }
    return schedule;
}

LoopNest::LoopNest(std::vector<Loop> loops, Schedule schedule)
    : loops_(std::move(loops)), schedule_(std::move(schedule)) {
    require_loops(loops_);
    require_levels(loops_, schedule_);
    for (std::size_t i = 0; i < loops_.size(); ++i) {
        whole_.at(i) = {0, loops_[i].extent};
        if (loops_[i].extent == 0) return;
    }
    cut();
    tasks_ = 1;
    for (auto level = cuts_.rbegin(); level != cuts_.rend(); ++level) {
        if (level->tasks == 0) continue;
        level->task_stride = tasks_;
        tasks_ *= level->tasks;
        level->tasks = tasks_;
    }
}

std::size_t LoopNest::outermost_shared() const {
    const auto numbers = [](const Cut& level) { return level.slow_stride != 0; };
    const auto slowest = std::find_if(cuts_.begin(), cuts_.end(), numbers);
    if (slowest != cuts_.end()) return slowest->loop;
    const auto is_shared = [](const Cut& level) { return level.task_stride != 0; };
    const auto outermost = std::find_if(cuts_.begin(), cuts_.end(), is_shared);
    return outermost == cuts_.end() ? loops_.size() : outermost->loop;
}

// The outermost level of the loop, cuts_.size() without one.
std::size_t LoopNest::level_of(std::size_t loop) const {
    const auto is_level = [loop](const Cut& level) { return level.loop == loop; };
    return static_cast<std::size_t>(std::find_if(cuts_.begin(), cuts_.end(), is_level) -
                                    cuts_.begin());
}

std::int64_t LoopNest::tasks_by(std::size_t loop) const {
    const std::size_t slowest = level_of(loop);
    if (slowest == cuts_.size() || loops_[loop].extent % cuts_[slowest].step != 0) return 0;
    std::int64_t tasks = 1;
    for (std::size_t i = 0; i < cuts_.size(); ++i) {
        const Cut& level = cuts_[i];
        if (level.slow_stride != 0 || (level.loop == loop && level.tasks == 0)) return 0;
        if (i <= slowest && level.tasks != 0) tasks *= level.tasks / level.task_stride;
    }
    return tasks;
}

void LoopNest::number_by(std::size_t loop) {
    const std::size_t slowest = level_of(loop);
    tasks_ = tasks_by(loop);
    std::int64_t stride = 1;
    for (std::size_t i = cuts_.size(); i-- > 0;) {
        Cut& level = cuts_[i];
        const std::int64_t iterations = level.tasks == 0 ? 0 : level.tasks / level.task_stride;
        level.tasks = level.task_stride = 0;
        if (i >= slowest || iterations == 0) continue;
        level.task_stride = stride;
        stride *= iterations;
    }
    cuts_[slowest].slow_stride = stride;
}

// Leaves the iterations of parallel levels in Cut::tasks, to be numbered.
void LoopNest::cut() {
    std::array<std::int64_t, kMostLoops> sizes = {};
    for (std::size_t i = 0; i < loops_.size(); ++i) sizes.at(i) = loops_[i].extent;
    std::int64_t calls = 1;
    for (const Level& level : schedule_.levels) {
        const std::size_t loop = index_of(loops_, level.letter);
        std::int64_t& size = sizes.at(loop);
        if (level.step >= size) continue;
        const std::int64_t iterations = ceil_div(size, level.step);
        if (calls > std::numeric_limits<std::int64_t>::max() / iterations) {
            refuse("The schedule " + in_quotes(to_string(schedule_)) +
                   " has more iterations than a 64-bit integer can count, expected at most 2^63 - "
                   "1.");
        }
        calls *= iterations;
        cuts_.push_back({loop, level.step, level.parallel ? iterations : 0, 0});
        size = level.step;
    }
}

}  // namespace dlprim
