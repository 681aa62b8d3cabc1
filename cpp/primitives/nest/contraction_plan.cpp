#include "primitives/nest/contraction_plan.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>

#include "brgemm/brgemm.h"
#include "brgemm/plan.h"
#include "jit/cache.h"
#include "jit/isa.h"
#include "jit/machine.h"
#include "primitives/nest/contraction_builder.h"
#include "primitives/nest/schedule_cost.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Bytes of B that all threads may read for each of A that they would else leave to each other.
constexpr double kBytesOfBForRows = 1.5;
// Tasks that sharing rows leaves, unless there were fewer: some for each of many threads.
constexpr std::int64_t kLeastTasks = 512;
// Of the time of the thread that has most tasks, what threads work in the mean, and how much of it
// is enough.
constexpr double kEven = 0.9;
// How many times as much parts of columns have to give, because their kernels read A again. Those
// of a window took 1.3 times as long on a Zen 3; in AVX-512, on two threads of a Zen 4, an image
// took 0.97 of the time from an eighth on in MobileNetV2, a first layer's gradient 0.88.
double worth_of_parts() { return usable_isa() >= Isa::avx512 ? 1.125 : 1.3; }
constexpr double kFlopsWorthParts = 1e6;  // below, kernels for them take longer to make

double even_share(std::int64_t tasks, std::int64_t threads) {
    if (tasks == 0) return 1;
    const std::int64_t rounds = (tasks + threads - 1) / threads;
    return static_cast<double>(tasks) / static_cast<double>(rounds * threads);
}

std::vector<std::int64_t> steps_of(const Schedule& schedule, char letter) {
    std::vector<std::int64_t> steps;
    for (const Level& level : schedule.levels) {
        if (level.letter == letter) steps.push_back(level.step);
    }
    return steps;
}

// The sizes of the ranges that are left when `extent` is cut by all steps in turn.
void collect_sizes(std::int64_t extent, const std::vector<std::int64_t>& steps, std::size_t level,
                   std::set<std::int64_t>& sizes) {
    if (level == steps.size()) {
        if (extent > 0) sizes.insert(extent);
        return;
    }
    const Blocks blocks{extent, steps[level]};
    if (blocks.count() == 0) return;
    if (blocks.count() > 1) collect_sizes(steps[level], steps, level + 1, sizes);
    collect_sizes(blocks.at(blocks.count() - 1).size(), steps, level + 1, sizes);
}

// Whether the last range of a loop's last level is not all of it.
bool is_split(const ContractionLoop& loop, const Schedule& schedule) {
    return last_step(schedule, loop.letter) < loop.extent;
}

// Empty where the last level of a loop may take more than one index at a time.
std::string why_single(const Contraction& it, const Schedule& schedule, int loop) {
    const bool with_entries = it.entry_loop >= 0 && is_split(it.loop_at(it.entry_loop), schedule);
    if (loop == it.columns.loop) return "counts blocks of columns";
    if (loop == it.selector_loop) return "selects what is computed";
    if (loop == it.rows.loop) return it.rows.unit > 1 ? "counts blocks of rows" : "";
    if (loop == it.entry_loop) return "";
    if (loop != it.batch.loop) return "is no dimension of the kernel";
    return with_entries ? "is gathered with another loop that is split" : "";
}

void require_fit(const Contraction& contraction, const Schedule& schedule) {
    const auto refuse = [&](char letter, const std::string& what) {
        throw std::invalid_argument("schedule '" + to_string(schedule) + "': loop " + letter + " " +
                                    what);
    };
    for (int i = 0; i < static_cast<int>(contraction.loops.size()); ++i) {
        const ContractionLoop& loop = contraction.loop_at(i);
        const bool gathered = i == contraction.batch.loop || i == contraction.entry_loop;
        const std::string why = why_single(contraction, schedule, i);
        if (!why.empty() && last_step(schedule, loop.letter) != 1) {
            refuse(loop.letter, why + ", expected a last step of 1");
        }
        if (loop.sum && !gathered) {
            throw std::invalid_argument(std::string("loop ") + loop.letter +
                                        " is a sum that no kernel call gathers, expected the batch "
                                        "or the entry loop");
        }
        const bool shared = std::any_of(
            schedule.levels.begin(), schedule.levels.end(),
            [&](const Level& level) { return level.letter == loop.letter && level.parallel; });
        if (loop.sum && shared) {
            refuse(loop.letter, "adds to the same result in every step, expected a small letter");
        }
        if (gathered && contraction.sums_at_once() && is_split(loop, schedule)) {
            refuse(loop.letter,
                   "is split, expected one step over all of it: a result that is no float32 is "
                   "rounded once");
        }
    }
}

// Of the blocks that the rows loop makes, sorted.
std::vector<std::int64_t> row_sizes(const Contraction& contraction, const Schedule& schedule) {
    const Dimension& rows = contraction.rows;
    std::set<std::int64_t> elements;
    if (rows.loop < 0) {
        elements.insert(contraction.block_rows);
    } else {
        const ContractionLoop& loop = contraction.loop_at(rows.loop);
        std::set<std::int64_t> sizes;
        collect_sizes(loop.extent, steps_of(schedule, loop.letter), 0, sizes);
        for (const std::int64_t size : sizes) {
            if (size * rows.unit <= rows.total) elements.insert(size * rows.unit);
            if (rows.total % rows.unit != 0) {
                elements.insert(rows.total - (loop.extent - size) * rows.unit);
            }
        }
    }
    return {elements.begin(), elements.end()};
}

// The loops that lead from the operands of a call to what will be read from memory next: where a
// sum runs over what is gathered from A and B, the loops of that sum, and else those along which A
// moves.
std::vector<int> loops_ahead(const Contraction& contraction, const Schedule& schedule) {
    std::vector<int> ahead;
    for (auto level = schedule.levels.rbegin(); level != schedule.levels.rend(); ++level) {
        const int index = contraction.loop_of(level->letter);
        const ContractionLoop& loop = contraction.loop_at(index);
        const bool moves_a = loop.a != 0 || index == contraction.selector_loop;
        const bool moves = contraction.fetching.far_b ? loop.b != 0 : moves_a;
        const bool leads = contraction.entry_loop >= 0 ? loop.sum : !loop.sum && moves;
        if (!leads || level->step >= loop.extent) continue;
        if (std::find(ahead.begin(), ahead.end(), index) == ahead.end()) ahead.push_back(index);
    }
    return ahead;
}

}  // namespace

std::vector<Loop> loops_of(const Contraction& contraction) {
    std::vector<Loop> loops;
    for (const ContractionLoop& loop : contraction.loops) {
        loops.push_back({loop.letter, loop.extent});
    }
    return loops;
}

int Contraction::loop_of(char letter) const {
    const auto found =
        std::find_if(loops.begin(), loops.end(),
                     [letter](const ContractionLoop& it) { return it.letter == letter; });
    return found == loops.end() ? -1 : static_cast<int>(found - loops.begin());
}

std::int64_t Dimension::size(Range range) const {
    return std::min(range.end * unit, total) - range.begin * unit;
}

ContractionPlan::Variant ContractionPlan::Variant::at(std::size_t index) {
    return {.rows = static_cast<std::int64_t>(index / kPerRows),
            .last_columns = (index & 8) != 0,
            .last_depth = (index & 4) != 0,
            .first = (index & 2) != 0,
            .last = (index & 1) != 0};
}

std::size_t ContractionPlan::Variant::index() const {
    return static_cast<std::size_t>(rows) * kPerRows + (last_columns ? 8U : 0U) +
           (last_depth ? 4U : 0U) + (first ? 2U : 0U) + (last ? 1U : 0U);
}

// Threads share rows rather than columns, whatever the order is in which they go through them: the
// rows that a thread reads are mostly those it has just written, and to read those of others takes
// longer than to read more of B, which nobody writes and each of them keeps. At the end of a
// thread's rows the kernels fetch those of the next one, as they know the whole loop alone.
void ContractionPlan::share_rows() {
    const auto is_row = [&](std::size_t index) {
        const ContractionLoop& loop = contraction_.loops[index];
        return loop.b == 0 && !loop.sum && loop.c != 0;
    };
    const std::size_t outermost = nest_.outermost_shared();
    if (outermost == contraction_.loops.size() || is_row(outermost) ||
        contraction_.bytes_b > kBytesOfBForRows * contraction_.bytes_a ||
        contraction_.bytes_b > usable(this_machine().l2)) {
        return;
    }
    std::size_t best = outermost;
    std::int64_t most = std::min(nest_.tasks(), kLeastTasks) - 1;
    for (std::size_t i = 0; i < contraction_.loops.size(); ++i) {
        const std::int64_t tasks = is_row(i) ? nest_.tasks_by(i) : 0;
        if (tasks <= most) continue;
        best = i;
        most = tasks;
    }
    if (best != outermost) nest_.number_by(best);
}

template <class Body>
void ContractionPlan::for_kernels(const Body& body) {
    for (PreparedClass& of_class : classes_) {
        for (PreparedTerm& term : of_class.terms) {
            for (std::size_t index = 0; index < term.kernels.size(); ++index) {
                const Variant variant = Variant::at(index);
                if (!is_needed(term.term, of_class.sums_apart, variant)) continue;
                body(term, index, spec_of(term.term, of_class.sums_apart, variant));
            }
        }
    }
}

ContractionPlan::ContractionPlan(Contraction contraction, const Schedule& schedule)
    : ContractionPlan(std::move(contraction), schedule, true) {}

ContractionPlan::ContractionPlan(Contraction contraction, const Schedule& schedule,
                                 bool with_kernels)
    : contraction_(std::move(contraction)), nest_(loops_of(contraction_), schedule) {
    require_fit(contraction_, schedule);
    row_sizes_ = row_sizes(contraction_, schedule);
    for (const int loop : {contraction_.batch.loop, contraction_.entry_loop}) {
        sum_is_split_ =
            sum_is_split_ || (loop >= 0 && is_split(contraction_.loop_at(loop), schedule));
    }
    streams_ = contraction_.bytes_c > this_machine().l2;
    const double ahead =
        contraction_.bytes_a + (contraction_.entry_loop < 0 ? 0 : contraction_.bytes_b);
    if (contraction_.fetching.far_b) share_far_b(schedule);
    share_rows();
    if (contraction_.fetching.next_b || fetch_rows_ > 0 ||
        (ahead > this_machine().l2 && !contraction_.fetching.elsewhere)) {
        ahead_ = loops_ahead(contraction_, schedule);
    }
    for (const std::vector<Term>& terms : contraction_.classes) {
        PreparedClass& made = classes_.emplace_back();
        const bool whole = std::all_of(terms.begin(), terms.end(), [&](const Term& term) {
            return term.first && term.last && !has_last_depth(term);
        });
        // What C itself holds exactly goes on there.
        const bool holds_sums =
            contraction_.c_type == DType::f32 || contraction_.c_type == DType::s32;
        made.sums_apart = !holds_sums && !whole;
        sums_pass_through_c_ =
            sums_pass_through_c_ || ((!whole || sum_is_split_) && !made.sums_apart);
        if (made.sums_apart && !row_sizes_.empty()) {
            const Dimension& columns = contraction_.columns;
            const std::int64_t most = std::min(columns.unit, columns.total);
            block_bytes_ = aligned(row_sizes_.back() * most * size_of(DType::f32));
        }
        for (const Term& term : terms) made.terms.push_back(prepared(term));
    }
    if (!with_kernels) return;
    for_kernels([&](PreparedTerm& term, std::size_t index, const BrgemmSpec& spec) {
        kernels_.push_back(brgemm(spec));
        term.kernels[index] = kernels_.back().get();
    });
}

const ContractionPlan& ContractionPlan::for_threads(int threads) const {
    // A loop of one task is none, and its threads have to be worth it.
    const std::int64_t tasks = nest_.tasks();
    const bool pays = contraction_.flops >= kFlopsWorthParts &&
                      (tasks > 1 || worth_of_threads(contraction_.flops, 0) >= 1);
    if (threads <= 1 || !pays || even_share(tasks, threads) >= kEven) return *this;
    const auto shared = [this](const Pointer& it) -> const ContractionPlan& {
        return it ? *it : *this;
    };
    {
        const std::lock_guard lock(short_lock(this));
        const auto known = by_threads_.find(threads);
        if (known != by_threads_.end()) return shared(known->second);
    }
    const Pointer made = finer(threads);
    const std::lock_guard lock(short_lock(this));
    return shared(by_threads_.try_emplace(threads, made).first->second);
}

// The one of fewest parts that leaves nobody waiting, or else least; null where that is this one.
ContractionPlan::Pointer ContractionPlan::finer(int threads) const {
    const std::int64_t tasks = nest_.tasks();
    Pointer best;
    double even = even_share(tasks, threads);
    const double least = worth_of_parts() * even;
    for (const std::int64_t parts : parts_of_columns(contraction_)) {
        // The last part of a single block may be a small one.
        const std::int64_t width = in_parts_of_columns(contraction_, parts).columns.unit;
        const double whole =
            static_cast<double>(contraction_.columns.unit) / static_cast<double>(parts * width);
        const double more = whole * even_share(tasks * parts, threads);
        if (even >= kEven) break;
        if (more < least || more <= even) continue;
        Pointer made = of_parts(parts);
        if (made == nullptr) continue;
        best = std::move(made);
        even = more;
    }
    return best;
}

// The first that a thread has made stays, because a lock is not held meanwhile.
ContractionPlan::Pointer ContractionPlan::of_parts(std::int64_t parts) const {
    {
        const std::lock_guard lock(short_lock(this));
        const auto known = by_parts_.find(parts);
        if (known != by_parts_.end()) return known->second;
    }
    Pointer made = std::make_shared<const ContractionPlan>(
        in_parts_of_columns(contraction_, parts),
        with_parts_of_columns(contraction_, nest_.schedule()));
    if (!made->sums_as(*this)) made = nullptr;
    const std::lock_guard lock(short_lock(this));
    return by_parts_.try_emplace(parts, made).first->second;
}

// Whether all elements of C are summed in the same order as by the plan of whole columns.
bool ContractionPlan::sums_as(const ContractionPlan& whole) const {
    const auto is_alike = [](const PreparedTerm& mine, const PreparedTerm& theirs) {
        for (std::size_t i = 0; i < mine.kernels.size(); ++i) {
            for (const bool last_columns : {false, true}) {
                Variant variant = Variant::at(i);
                variant.last_columns = last_columns;
                const Brgemm* const other = theirs.kernels[variant.index()];
                if (mine.kernels[i] == nullptr || other == nullptr) continue;
                if (!sums_alike(mine.kernels[i]->plan(), other->plan())) return false;
            }
        }
        return true;
    };
    for (std::size_t i = 0; i < classes_.size(); ++i) {
        const std::vector<PreparedTerm>& mine = classes_[i].terms;
        if (!std::equal(mine.begin(), mine.end(), whole.classes_[i].terms.begin(), is_alike)) {
            return false;
        }
    }
    return true;
}

bool ContractionPlan::sums_in_order(const Contraction& contraction, const Schedule& schedule) {
    const Isa isa = usable_isa();
    bool all = true;
    ContractionPlan plan(contraction, schedule, false);
    plan.for_kernels([&](const PreparedTerm&, std::size_t, const BrgemmSpec& spec) {
        all = all && dlprim::sums_in_order(make_plan(validated(spec), isa, machine_at(isa)));
    });
    return all;
}

std::vector<std::string> ContractionPlan::kernel_names() const {
    std::set<std::string> names;
    for (const auto& kernel : kernels_) names.insert(kernel->name());
    return {names.begin(), names.end()};
}

}  // namespace dlprim
