#include "primitives/rnn/rnn.h"

#include <algorithm>
#include <stdexcept>

#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/schedule_cost.h"
#include "primitives/rnn/rnn_step.h"

namespace dlprim {
namespace {

// Rows of the products with src at once, so that what they leave is still in a cache when its step
// comes.
constexpr std::int64_t kRowsTogether = 256;
// And of these, of src for each panel of weights, at most.
constexpr std::int64_t kRowsOfBlock = 112;
// Sequences of a tile, about.
constexpr std::int64_t kTileRows = 64;
// Panels of a sum that one call of a kernel takes: 64 of 64 channels are 1 MiB of float32 weights.
constexpr std::int64_t kPanelsTogether = 16;
// Weights that stay in the L3 cache beside everything else, so that all of them may follow each
// block of rows.
constexpr double kResidentWeights = 6e6;
// Gradients of one gate's weights that stay in the L2 cache while all rows are added to them.
constexpr double kResidentSums = 300e3;

bool is_recurrent(RnnPass pass) {
    return pass == RnnPass::recurrence || pass == RnnPass::diff_recurrence;
}

// Rows of blocks as equal as can be, so that threads get equal shares.
std::int64_t equal_blocks(std::int64_t rows, std::int64_t at_most) {
    const std::int64_t extent = std::max<std::int64_t>(rows, 1);
    return Blocks{extent, Blocks{extent, at_most}.count()}.count();
}

// Panels outside, so that the weights of one serve all rows.
Schedule recurrent_schedule(const RnnShape& shape, RnnPass pass) {
    const std::int64_t rows = equal_blocks(shape.N, kTileRows);
    Schedule schedule{{{.letter = 'k', .step = 1, .parallel = true},
                       {.letter = 'n', .step = rows, .parallel = true}}};
    if (pass == RnnPass::recurrence) {
        schedule.levels.push_back({.letter = 'g', .step = 1, .parallel = false});
        schedule.levels.push_back(
            {.letter = 'c', .step = shape.state().count(), .parallel = false});
    } else {
        const std::int64_t panels = shape.gates() * shape.state().count();
        const std::int64_t calls = Blocks{panels, kPanelsTogether}.count();
        schedule.levels.push_back(
            {.letter = 's', .step = Blocks{panels, calls}.count(), .parallel = false});
    }
    return schedule;
}

// Of the other products by what their operands leave in the caches; see docs/rnn.md for what was
// measured. Empty where the model of schedule_cost.h chooses as well. `rows` are those of a run.
std::string measured_schedule(const RnnShape& shape, RnnPass pass, const Contraction& product,
                              std::int64_t rows) {
    const bool small_weights = product.bytes_b <= kResidentWeights;
    const std::string block = "N" + std::to_string(equal_blocks(rows, kRowsOfBlock));
    if (pass == RnnPass::projection) {
        const std::string sum = " c" + std::to_string(shape.src().count());
        return (small_weights ? block + " G K" : "G K " + block) + sum;
    }
    if (pass == RnnPass::diff_src) {
        const std::int64_t sum = shape.gates() * shape.state().count();
        if (small_weights) return block + " C s" + std::to_string(sum);
        return shape.dtype == DType::f32 ? "N224 s" + std::to_string(kPanelsTogether) + " C" : "";
    }
    return product.bytes_c <= kResidentSums ? "r K C" : "";
}

// What a block of rows sums into is found by its number, its first row / the innermost step: no two
// blocks may have one number.
void require_even_blocks(RnnPass pass, const Schedule& schedule) {
    std::int64_t outside = 0;
    for (const Level& level : schedule.levels) {
        if (level.letter != 'n') continue;
        if (level.step > 0 && outside % level.step != 0) {
            throw std::invalid_argument(
                "schedule '" + to_string(schedule) + "' of " + std::string(name_of(pass)) +
                " has the step " + std::to_string(level.step) + " inside the step " +
                std::to_string(outside) + " of the loop 'n', expected a step that divides it");
        }
        outside = level.step;
    }
}

// The gates of a tile are applied when the loops behind rows and channels are through, on the
// thread that ran them.
void require_tiles(RnnPass pass, const Schedule& schedule) {
    bool inside = false;
    for (const Level& level : schedule.levels) {
        const bool outer = level.letter == 'n' || level.letter == 'k';
        if ((outer && inside) || (!outer && level.parallel)) {
            throw std::invalid_argument("schedule '" + to_string(schedule) + "' of " +
                                        std::string(name_of(pass)) +
                                        ": expected n and k outside of all other loops, which "
                                        "have small letters");
        }
        inside = inside || !outer;
    }
    require_even_blocks(pass, schedule);
}

}  // namespace

std::string_view name_of(RnnPass pass) {
    switch (pass) {
        case RnnPass::projection: return "projection";
        case RnnPass::recurrence: return "recurrence";
        case RnnPass::diff_recurrence: return "diff_recurrence";
        case RnnPass::diff_src: return "diff_src";
        case RnnPass::diff_w_ih: return "diff_w_ih";
        default: return "diff_w_hh";
    }
}

Rnn::Rnn(const RnnShape& shape) : shape_(validated(shape)) {
    for (const RnnPass pass : kRnnPasses) schedules_[pass] = candidates(pass, 1).front();
}

std::int64_t Rnn::steps_together() const {
    return std::clamp<std::int64_t>(kRowsTogether / std::max<std::int64_t>(shape_.N, 1), 1,
                                    std::max<std::int64_t>(shape_.T, 1));
}

Contraction Rnn::contraction(RnnPass pass, std::int64_t rows) const {
    switch (pass) {
        case RnnPass::projection: return projection_contraction(shape_, rows, sum_rows());
        case RnnPass::recurrence: return recurrence_contraction(shape_, sum_rows());
        case RnnPass::diff_recurrence: return diff_recurrence_contraction(shape_);
        case RnnPass::diff_src: return diff_src_contraction(shape_);
        case RnnPass::diff_w_ih:
            return diff_weights_contraction(shape_, shape_.src(), summed_rows(shape_));
        default: {
            const std::int64_t before = shape_.dtype == DType::f32 ? shape_.N : 0;
            return diff_weights_contraction(shape_, shape_.state(), summed_rows(shape_) + before);
        }
    }
}

Rnn::Plan Rnn::make_plan(RnnPass pass, const Schedule& schedule, std::int64_t rows) const {
    if (is_recurrent(pass)) require_tiles(pass, schedule);
    return std::make_shared<ContractionPlan>(contraction(pass, rows), schedule);
}

Rnn::Plan Rnn::plan(RnnPass pass, std::int64_t rows) const {
    const std::lock_guard lock(mutex_);
    Plan& known = plans_[{pass, rows}];
    if (!known) known = make_plan(pass, schedules_.at(pass), rows);
    return known;
}

Schedule Rnn::schedule(RnnPass pass) const {
    const std::lock_guard lock(mutex_);
    return schedules_.at(pass);
}

void Rnn::set_schedule(RnnPass pass, const Schedule& schedule) {
    make_plan(pass, schedule, shape_.rows());
    const std::lock_guard lock(mutex_);
    std::erase_if(plans_, [&](const auto& entry) { return entry.first.first == pass; });
    schedules_[pass] = schedule;
}

std::vector<Loop> Rnn::loops(RnnPass pass) const {
    std::vector<Loop> loops;
    for (const ContractionLoop& loop : contraction(pass, shape_.rows()).loops) {
        loops.push_back({loop.letter, loop.extent});
    }
    return loops;
}

std::vector<Schedule> Rnn::candidates(RnnPass pass, int count) const {
    if (is_recurrent(pass)) return {recurrent_schedule(shape_, pass)};
    const Contraction product = contraction(pass, shape_.rows());
    std::vector<Schedule> found = ranked_schedules(product, this_machine(), count);
    const std::int64_t rows = pass == RnnPass::projection ? sum_rows() : shape_.rows();
    const std::string measured = measured_schedule(shape_, pass, product, rows);
    if (!measured.empty()) {
        const Schedule schedule = parse_schedule(measured);
        std::erase(found, schedule);
        found.insert(found.begin(), schedule);
        found.resize(std::min<std::size_t>(found.size(), static_cast<std::size_t>(count)));
    }
    return found;
}

std::string Rnn::describe() const {
    const Panels in = shape_.src();
    const Panels out = shape_.state();
    std::string text = "panels: C " + std::to_string(in.count()) + " x " +
                       std::to_string(in.width) + ", K " + std::to_string(out.count()) + " x " +
                       std::to_string(out.width) + "\n";
    if (shape_.rows() == 0) return text;
    for (const RnnPass pass : kRnnPasses) {
        text += std::string(name_of(pass)) + ": schedule '" + to_string(schedule(pass)) + "'\n";
        const std::int64_t rows = pass == RnnPass::projection ? shape_.rows() : 0;
        for (const std::string& name : plan(pass, rows)->kernel_names()) {
            text += "  " + name + "\n";
        }
    }
    return text;
}

}  // namespace dlprim
