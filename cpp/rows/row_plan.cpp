#include "rows/row_plan.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "jit/activation.h"

namespace dlprim {
namespace {

using Kind = RowPlace::Kind;

// Operations that a value may take to be computed again rather than kept, in additions.
constexpr int kMostComputedAgain = 8;
// Vectors under way together: enough for the latency of sums, or of one long polynomial.
constexpr int kMostUnrolled = 8;
constexpr int kMostUnrolledHeavy = 4;
constexpr int kHeavy = 10;
// Elements of a strip, at least: as many channels as blocks of activations have, so that a row of
// one is a strip. Rather than have fewer, columns are loaded again for every row.
constexpr int kFewestInStrip = 64;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

int cost_of(const RowInstruction& it) {
    switch (it.op) {
        case RowOp::divide:
        case RowOp::square_root: return 5;
        case RowOp::activation:
            return static_cast<Activation>(it.detail) == Activation::relu ? 1 : 15;
        case RowOp::exponential:
        case RowOp::logarithm: return 15;
        default: return 1;
    }
}

class Planner {
public:
    // So many of the columns that are read stay in registers, at most.
    Planner(const RowSpec& spec, Isa isa, int most_held)
        : spec_(spec),
          most_held_(most_held),
          uniform_(uniform_values(spec)),
          count_(static_cast<int>(uniform_.size())),
          products_(joined_products(spec)),
          exact_(exact_values(spec)) {
        plan_.spec = spec;
        plan_.isa = isa;
    }

    RowPlan planned() {
        place_in_time();
        plan_.by_strips = runs_by_strips();
        place_single_values();
        plan_.passes.resize(at(passes_ + 1));
        for (int pass = passes_ - 1; pass >= 0; --pass) collect(pass);
        for (int pass = 0; pass < passes_; ++pass) write_body(pass);
        write_single_steps();
        count_registers();
        return std::move(plan_);
    }

private:
    const RowInstruction& instruction(int index) const { return spec_.instructions[at(index)]; }

    template <class Body>
    void for_inputs(int index, const Body& body) const {
        for (const std::int16_t input : instruction(index).inputs) {
            if (input != kNoValue) body(static_cast<int>(input));
        }
    }

    // The pass in which each value is computed and from which on it is there, and what computing it
    // again would cost.
    void place_in_time() {
        pass_.assign(at(count_), 0);
        ready_.assign(at(count_), 0);
        costs_.assign(at(count_), 0);
        once_.assign(at(count_), false);
        for (int i = 0; i < count_; ++i) {
            const RowInstruction& it = instruction(i);
            bool once = uniform_[at(i)] && !is_reduction(it.op);
            if (it.op == RowOp::load || it.op == RowOp::store) {
                once = once && spec_.operands[it.detail].shape == RowShape::scalar;
            }
            int cost = cost_of(it);
            for_inputs(i, [&](int input) {
                pass_[at(i)] = std::max(pass_[at(i)], ready_[at(input)]);
                once = once && once_[at(input)];
                if (!uniform_[at(input)]) cost += costs_[at(input)];
            });
            costs_[at(i)] = cost;
            once_[at(i)] = once;
            ready_[at(i)] = pass_[at(i)] + (is_reduction(it.op) ? 1 : 0);
            if (runs_per_vector(i)) passes_ = std::max(passes_, pass_[at(i)] + 1);
        }
    }

    bool runs_per_vector(int i) const {
        const RowInstruction& it = instruction(i);
        if (it.op == RowOp::store) return spec_.operands[it.detail].shape == RowShape::tensor;
        if (it.op == RowOp::store_bits) return true;
        return !uniform_[at(i)] || is_reduction(it.op) || it.op == RowOp::add_to_column;
    }

    bool runs_by_strips() const {
        const auto any = [&](const auto& holds) {
            return std::any_of(spec_.instructions.begin(), spec_.instructions.end(), holds);
        };
        return any([&](const RowInstruction& it) { return touches_column(it); }) &&
               !any([](const RowInstruction& it) { return is_reduction(it.op); });
    }

    bool touches_column(const RowInstruction& it) const {
        return it.op == RowOp::add_to_column ||
               (it.op == RowOp::load && spec_.operands[it.detail].shape == RowShape::column);
    }

    void place_single_values() {
        places_.assign(at(count_), {});
        for (int i = 0; i < count_; ++i) {
            const RowInstruction& it = instruction(i);
            if (it.op == RowOp::constant) {
                places_[at(i)] = {.kind = Kind::constant, .bits = it.bits};
            } else if (uniform_[at(i)] && has_result(it.op)) {
                places_[at(i)] = {.kind = Kind::single, .index = singles_++};
            }
        }
    }

    // What the pass computes, in the order of the program. Later passes have said what they need.
    void collect(int pass) {
        if (needed_.empty()) needed_.assign(at(passes_), std::vector<bool>(at(count_), false));
        if (kept_.empty()) kept_.assign(at(count_), kNoValue);
        std::vector<bool>& needed = needed_[at(pass)];
        for (int i = 0; i < count_; ++i) {
            const RowOp op = instruction(i).op;
            const bool is_end = is_reduction(op) || !has_result(op);
            if (runs_per_vector(i) && is_end && pass_[at(i)] == pass) needed[at(i)] = true;
        }
        for (int i = count_ - 1; i >= 0; --i) {
            if (!needed[at(i)] || is_reloaded(i, pass)) continue;
            for_inputs(source(i), [&](int input) {
                if (uniform_[at(input)]) return;
                needed[at(input)] = true;
                if (pass_[at(input)] < pass && costs_[at(input)] > kMostComputedAgain) {
                    if (kept_[at(input)] == kNoValue) kept_[at(input)] = plan_.kept_rows++;
                    needed_[at(pass_[at(input)])][at(input)] = true;
                }
            });
        }
    }

    bool is_reloaded(int i, int pass) const {
        return kept_[at(i)] != kNoValue && pass_[at(i)] < pass;
    }

    // The instruction whose inputs a step has.
    int source(int i) const { return products_[at(i)] == kNoValue ? i : products_[at(i)]; }

    void write_body(int pass) {
        const std::vector<bool>& needed = needed_[at(pass)];
        RowPass& it = plan_.passes[at(pass)];
        std::vector<int> last_use(at(count_), -1);
        std::vector<int> uses(at(count_), 0);
        for (int i = 0; i < count_; ++i) {
            if (!needed[at(i)] || is_reloaded(i, pass)) continue;
            for_inputs(source(i), [&](int input) {
                last_use[at(input)] = i;
                ++uses[at(input)];
            });
        }
        std::vector<bool> taken;
        const auto take = [&] {
            const auto free = std::find(taken.begin(), taken.end(), false);
            const auto index = static_cast<int>(free - taken.begin());
            if (free == taken.end()) {
                taken.push_back(true);
            } else {
                *free = true;
            }
            return index;
        };
        for (int i = 0; i < count_; ++i) {
            if (!needed[at(i)] || hoisted(i)) continue;
            if (uses[at(i)] == 1 && stays_in_place(i, last_use[at(i)])) continue;
            RowStep step = is_reloaded(i, pass) ? of_scratch(RowOp::reload, i) : placed(i);
            if (step.op != RowOp::reload) {
                for_inputs(source(i), [&](int input) {
                    const RowPlace& place = places_[at(input)];
                    if (place.kind == Kind::vectors && last_use[at(input)] == i) {
                        taken[at(place.index)] = false;
                    }
                });
            }
            finish_step(i, step, it, take);
            it.body.push_back(step);
            if (kept_[at(i)] != kNoValue && pass_[at(i)] == pass) it.body.push_back(of_scratch(RowOp::keep, i));
            if (places_[at(i)].kind == Kind::vectors && last_use[at(i)] < 0) {
                taken[at(places_[at(i)].index)] = false;
            }
        }
        vectors_ = std::max(vectors_, static_cast<int>(taken.size()));
    }

    // Loads of columns happen at the begin of a strip.
    bool hoisted(int i) {
        const RowInstruction& it = instruction(i);
        if (!plan_.by_strips || it.op != RowOp::load || !touches_column(it)) return false;
        if (held_ == most_held_) return false;
        ++held_;
        places_[at(i)] = {.kind = Kind::columns, .index = column_values_++};
        RowStep step = placed(i);
        step.to = places_[at(i)];
        plan_.columns.push_back(step);
        return true;
    }

    // A load that is an operand of the instruction that reads it, if nothing is written between.
    bool stays_in_place(int i, int reader) {
        const RowInstruction& it = instruction(i);
        if (it.op != RowOp::load || spec_.operands[it.detail].dtype != DType::f32) return false;
        switch (instruction(reader).op) {
            case RowOp::add:
            case RowOp::subtract:
            case RowOp::multiply:
            case RowOp::divide:
            case RowOp::multiply_add:
            case RowOp::sum:
            case RowOp::add_to_column: break;
            default: return false;
        }
        for (int between = i + 1; between < reader; ++between) {
            if (!has_result(instruction(between).op)) return false;
        }
        places_[at(i)] = {.kind = Kind::operand, .index = it.detail};
        has_operands_ = true;
        return true;
    }

    template <class Take>
    void finish_step(int i, RowStep& step, RowPass& pass, const Take& take) {
        if (is_reduction(step.op)) {
            step.to = {.index = static_cast<int>(pass.reductions.size())};
            pass.reductions.push_back({step.op, places_[at(i)]});
        } else if (step.op == RowOp::add_to_column) {
            if (!plan_.by_strips) return;
            step.to = {.kind = Kind::columns, .index = column_values_++};
            plan_.columns.push_back(step);
        } else if (has_result(step.op)) {
            step.to = {.kind = Kind::vectors, .index = take()};
            places_[at(i)] = step.to;
        }
    }

    RowStep placed(int i) const {
        const RowInstruction& it = instruction(i);
        RowStep step;
        step.op = it.op;
        step.detail = it.detail;
        step.streams = it.op == RowOp::store && it.bits != 0;
        step.exact = it.op == RowOp::store && exact_[at(it.inputs[0])];
        const auto& inputs = instruction(source(i)).inputs;
        for (std::size_t k = 0; k < inputs.size(); ++k) {
            if (inputs[k] != kNoValue) step.from[k] = places_[at(inputs[k])];
        }
        const bool turns = it.op == RowOp::add || it.op == RowOp::multiply || source(i) != i;
        if (turns && step.from[0].in_memory()) std::swap(step.from[0], step.from[1]);
        return step;
    }

    RowStep of_scratch(RowOp op, int i) const {
        RowStep step;
        step.op = op;
        step.detail = static_cast<std::uint8_t>(kept_[at(i)]);
        if (op == RowOp::keep) step.from[0] = places_[at(i)];
        return step;
    }

    void write_single_steps() {
        for (int i = 0; i < count_; ++i) {
            const RowOp op = instruction(i).op;
            if (runs_per_vector(i) || op == RowOp::constant) continue;
            RowStep step = placed(i);
            step.to = places_[at(i)];
            (once_[at(i)] ? plan_.once : plan_.passes[at(ready_[at(i)])].before).push_back(step);
        }
    }

    template <class Body>
    void for_steps(const Body& body) {
        for (RowStep& step : plan_.once) body(step);
        for (RowStep& step : plan_.columns) body(step);
        for (RowPass& pass : plan_.passes) {
            for (RowStep& step : pass.before) body(step);
            for (RowStep& step : pass.body) body(step);
        }
    }

    void count_registers() {
        int scratch = 1;
        int accumulators = 0;
        int totals = 0;
        bool heavy = false;
        for_steps([&](const RowStep& step) {
            scratch = std::max(scratch, scratch_registers(step, spec_, plan_.isa));
        });
        for (const RowInstruction& it : spec_.instructions) heavy = heavy || cost_of(it) > kHeavy;
        for (const RowPass& pass : plan_.passes) {
            const auto sums = std::count_if(
                pass.reductions.begin(), pass.reductions.end(),
                [](const RowReduction& reduction) { return reduction.op == RowOp::sum; });
            accumulators = std::max(accumulators, static_cast<int>(pass.reductions.size()));
            totals = std::max(totals, static_cast<int>(sums));
        }
        const int all = vector_file(plan_.isa).registers;
        const int vectors = std::max(vectors_, 1);
        const auto at_unroll = [&](int unroll) {
            RowRegisters map;
            map.operand = scratch;
            map.vectors = map.operand + (has_operands_ ? 1 : 0);
            map.columns = map.vectors + vectors * (heavy ? unroll : 1);
            map.accumulators = map.columns + column_values_ * unroll;
            map.singles = map.accumulators + accumulators * unroll;
            return map;
        };
        plan_.takes_turns = heavy;
        plan_.unroll = heavy ? kMostUnrolledHeavy : kMostUnrolled;
        while (plan_.unroll > 1 && at_unroll(plan_.unroll).singles > all) plan_.unroll /= 2;
        plan_.registers = at_unroll(plan_.unroll);
        if (plan_.registers.singles > all && plan_.by_strips && held_ > 0) {
            plan_.unroll = 0;  // they do not fit
            return;
        }
        if (plan_.registers.singles > all) {
            throw std::invalid_argument("a row program needs " +
                                        std::to_string(plan_.registers.singles) +
                                        " registers, expected at most " + std::to_string(all));
        }
        plan_.totals = plan_.stack_vectors;
        plan_.stack_vectors += 2 * totals;
        deal_singles(all);
    }

    // Registers that are left go to the single values that passes read most.
    void deal_singles(int all) {
        std::vector<int> uses(at(singles_), 0);
        for (const RowPass& pass : plan_.passes) {
            for (const RowStep& step : pass.body) {
                for (const RowPlace& place : step.from) {
                    if (place.kind == Kind::single) ++uses[at(place.index)];
                }
            }
        }
        std::vector<int> order(at(singles_));
        for (int i = 0; i < singles_; ++i) order[at(i)] = i;
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return uses[at(a)] > uses[at(b)]; });
        std::vector<RowPlace> dealt(at(singles_));
        int next = plan_.registers.singles;
        for (const int single : order) {
            dealt[at(single)] = next < all
                                    ? RowPlace{.kind = Kind::single, .index = next++}
                                    : RowPlace{.kind = Kind::stack, .index = plan_.stack_vectors++};
        }
        plan_.registers.total = next;
        const auto deal = [&](RowPlace& place) {
            if (place.kind == Kind::single) place = dealt[at(place.index)];
        };
        for_steps([&](RowStep& step) {
            deal(step.to);
            for (RowPlace& place : step.from) deal(place);
        });
        for (RowPass& pass : plan_.passes) {
            for (RowReduction& reduction : pass.reductions) deal(reduction.result);
        }
    }

    const RowSpec& spec_;
    int most_held_;
    int held_ = 0;
    std::vector<bool> uniform_;
    int count_;
    std::vector<std::int16_t> products_;  // that an instruction adds up itself
    std::vector<bool> exact_;             // what bfloat16 holds
    RowPlan plan_;
    int passes_ = 0;
    int singles_ = 0;
    int vectors_ = 0;
    int column_values_ = 0;
    bool has_operands_ = false;
    // Of each instruction.
    std::vector<int> pass_;
    std::vector<int> ready_;
    std::vector<int> costs_;
    std::vector<bool> once_;
    std::vector<int> kept_;
    std::vector<RowPlace> places_;
    // Of each pass and instruction.
    std::vector<std::vector<bool>> needed_;
};

int columns_read(const RowSpec& spec) {
    const auto is_read = [](const RowOperand& it) {
        return it.shape == RowShape::column && !it.written;
    };
    return static_cast<int>(std::count_if(spec.operands.begin(), spec.operands.end(), is_read));
}

bool is_narrow(DType dtype) { return size_of(dtype) < 4; }

}  // namespace

int scratch_registers(const RowStep& step, const RowSpec& spec, Isa isa) {
    const bool avx2 = isa == Isa::avx2;
    switch (step.op) {
        case RowOp::store:
            // The value itself stays as it is, and rounding takes two more.
            return is_narrow(spec.operands[step.detail].dtype) ? 3 : 2;
        case RowOp::keep: return 1;
        case RowOp::rounded: return 3;
        case RowOp::gate:
        case RowOp::store_bits: return avx2 ? 2 : 1;
        case RowOp::activation: return activation_registers(static_cast<Activation>(step.detail));
        case RowOp::exponential: return 3;
        case RowOp::logarithm: return 4;
        case RowOp::select:
        case RowOp::divide:
        case RowOp::multiply_add: return 2;
        case RowOp::sum:
        case RowOp::highest:
        case RowOp::lowest: return avx2 ? 2 : 1;
        case RowOp::add_to_column: return 2;
        default: return 1;
    }
}

RowPlan make_row_plan(const RowSpec& spec, Isa isa) {
    validate(spec);
    if (isa < Isa::avx2) throw std::invalid_argument("a plan of a row program needs vectors");
    for (int held = kMostRowOperands;; held = std::min(held, columns_read(spec)) - 1) {
        RowPlan plan = Planner(spec, isa, held).planned();
        const int lanes = vector_file(isa).bytes / 4;
        if (!plan.by_strips || plan.unroll * lanes >= kFewestInStrip || held <= 0) return plan;
    }
}

}  // namespace dlprim
