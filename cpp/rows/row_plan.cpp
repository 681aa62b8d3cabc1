#include "rows/row_plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>

#include "rows/row_registers.h"

namespace dlprim {
namespace {

using Kind = RowPlace::Kind;

// Operations of a value, in additions, from which on it is kept rather than computed again.
constexpr int kDear = 9;

// Elements of a strip, at least: as many channels as blocks of activations have, so that a row of
// one is a strip. Rather than have fewer, columns are loaded again for every row.
constexpr int kFewestInStrip = 64;
// Rather than have fewer than these, rows are outside, and columns are in memory: unless a row adds
// several times to one.
constexpr int kNarrowestStrip = 32;

// Whether every use of each instruction rounds it to bfloat16.
std::vector<bool> narrow_values(const RowSpec& spec) {
    std::vector<bool> narrow(spec.instructions.size(), true);
    for (const RowInstruction& it : spec.instructions) {
        const bool stores = it.op == RowOp::store && spec.operands[it.detail].dtype == DType::bf16;
        const bool rounds = it.op == RowOp::rounded && DType{it.detail} == DType::bf16;
        if (stores || rounds) continue;
        it.for_inputs([&](std::size_t input) { narrow[input] = false; });
    }
    return narrow;
}

class Planner {
public:
    // So many of the columns that are read stay in registers, at most; below 0, there are no
    // strips. Of one vector's values at most `most_vectors` do.
    Planner(const RowSpec& spec, Isa isa, int most_held, int most_vectors)
        : spec_(spec),
          most_held_(most_held),
          most_vectors_(most_vectors),
          uniform_(uniform_values(spec)),
          count_(static_cast<int>(uniform_.size())),
          products_(joined_products(spec)),
          exact_(exact_values(spec)),
          narrow_(narrow_values(spec)) {
        plan_.spec = spec;
        plan_.isa = isa;
        plan_.is_listed = is_listed(spec);
    }

    RowPlan planned() {
        place_in_time();
        plan_.by_strips = most_held_ >= 0 && has_columns_alone(spec_);
        place_single_values();
        plan_.passes.resize(at(passes_ + 1));
        for (int pass = passes_ - 1; pass >= 0; --pass) collect(pass);
        for (int pass = 0; pass < passes_; ++pass) write_body(pass);
        if (goes_around_caches(spec_)) fetch_next_rows();
        write_single_steps();
        // Strips may be narrower, or none, and values on the stack.
        if (!assign_registers(plan_, demand_)) plan_.unroll = 0;
        return std::move(plan_);
    }

private:
    const RowInstruction& instruction(int index) const { return spec_.instructions[at(index)]; }

    // The pass in which each value is computed and from which on it is there, and what computing it
    // again would cost.
    void place_in_time() {
        pass_ = passes_of(spec_);
        ready_.assign(at(count_), 0);
        costs_.assign(at(count_), 0);
        once_.assign(at(count_), false);
        for (int i = 0; i < count_; ++i) {
            const RowInstruction& it = instruction(i);
            bool once = uniform_[at(i)] && !is_reduction(it.op) && !has_listed_number(it.op) &&
                        it.op != RowOp::first;
            if (it.op == RowOp::load || it.op == RowOp::store) {
                once = once && spec_.operands[it.detail].shape == RowShape::scalar;
            }
            costs_[at(i)] = cost_of(it);
            it.for_inputs([&](std::size_t input) {
                once = once && once_[input];
                if (!uniform_[input]) costs_[at(i)] += std::min(costs_[input], kDear);
            });
            once_[at(i)] = once;
            ready_[at(i)] = pass_[at(i)] + (is_reduction(it.op) ? 1 : 0);
            if (runs_per_vector(i)) passes_ = std::max(passes_, pass_[at(i)] + 1);
        }
    }

    bool runs_per_vector(int i) const {
        const RowInstruction& it = instruction(i);
        if (it.op == RowOp::store) return spec_.operands[it.detail].shape == RowShape::tensor;
        return !uniform_[at(i)] || is_reduction(it.op) || !has_result(it.op);
    }

    void place_single_values() {
        places_.assign(at(count_), {});
        for (int i = 0; i < count_; ++i) {
            const RowInstruction& it = instruction(i);
            if (it.op == RowOp::constant) {
                places_[at(i)] = {.kind = Kind::constant, .bits = it.bits};
            } else if (it.op == RowOp::carried) {
                places_[at(i)] = {.kind = Kind::columns, .index = demand_.columns++};
                const RowPlace first{.kind = Kind::constant, .bits = it.bits};
                plan_.carried.push_back({.op = it.op, .to = places_[at(i)], .from = {first}});
            } else if (it.op == RowOp::last) {
                places_[at(i)] = places_[at(it.inputs[0])];
            } else if (uniform_[at(i)] && has_result(it.op)) {
                places_[at(i)] = {.kind = Kind::single, .index = demand_.singles++};
            }
        }
    }

    // What the pass computes, in the order of the program. Later passes have said what they need.
    // Nothing is kept for what follows a list, which may be empty.
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
            instruction(source(i)).for_inputs([&](std::size_t input) {
                if (uniform_[input]) return;
                needed[input] = true;
                const bool is_dear = costs_[input] >= kDear;
                if (pass_[input] < pass && is_dear && !plan_.is_listed) {
                    if (kept_[input] == kNoValue) kept_[input] = plan_.kept_rows++;
                    needed_[at(pass_[input])][input] = true;
                }
            });
        }
    }

    bool is_reloaded(int i, int pass) const {
        return kept_[at(i)] != kNoValue && pass_[at(i)] < pass;
    }

    // The instruction whose inputs a step has.
    int source(int i) const { return products_[at(i)] == kNoValue ? i : products_[at(i)]; }

    // Of each value in a pass: how many read it, the last of them, and one that carries it. What is
    // carried is read when all else is done.
    struct Uses {
        std::vector<int> count, last, carry;
    };

    Uses uses_in(int pass) const {
        Uses uses{std::vector<int>(at(count_), 0), std::vector<int>(at(count_), -1),
                  std::vector<int>(at(count_), kNoValue)};
        for (int i = 0; i < count_; ++i) {
            if (!needed_[at(pass)][at(i)] || is_reloaded(i, pass)) continue;
            const bool carries = instruction(i).op == RowOp::carry;
            instruction(source(i)).for_inputs([&](std::size_t input) {
                ++uses.count[input];
                uses.last[input] = std::max(uses.last[input], carries ? count_ : i);
                if (carries) uses.carry[input] = i;
            });
        }
        return uses;
    }

    // What carries the value and nothing else reads, if it may overwrite what is carried at once.
    bool carries_at_once(int i, const Uses& uses) const {
        if (uses.count[at(i)] != 1 || uses.carry[at(i)] == kNoValue) return false;
        return uses.last[at(carried_by(uses.carry[at(i)]))] <= i;
    }

    int carried_by(int carry) const { return static_cast<int>(instruction(carry).bits); }

    void write_body(int pass) {
        const Uses uses = uses_in(pass);
        RowPass& it = plan_.passes[at(pass)];
        std::vector<RowStep> carried;
        holders_.clear();
        for (int i = 0; i < count_; ++i) {
            if (!needed_[at(pass)][at(i)] || hoisted(i) || stays_in_place(i, uses)) continue;
            RowStep step = is_reloaded(i, pass) ? of_scratch(RowOp::reload, i) : placed(i);
            if (step.op != RowOp::reload) {
                instruction(source(i)).for_inputs([&](std::size_t input) {
                    const RowPlace& place = places_[input];
                    if (place.kind == Kind::vectors && uses.last[input] == i) {
                        holders_[at(place.index)] = kNoValue;
                    }
                });
            }
            if (step.op == RowOp::carry) {
                step.to = places_[at(carried_by(i))];
                if (step.to != step.from[0]) carried.push_back(step);
                continue;
            }
            if (carries_at_once(i, uses)) {
                step.to = places_[at(i)] = places_[at(carried_by(uses.carry[at(i)]))];
            } else {
                finish_step(i, step, it, uses);
            }
            it.body.push_back(step);
            if (kept_[at(i)] != kNoValue && pass_[at(i)] == pass)
                it.body.push_back(of_scratch(RowOp::keep, i));
            if (places_[at(i)].kind == Kind::vectors && uses.last[at(i)] < 0) {
                holders_[at(places_[at(i)].index)] = kNoValue;
            }
        }
        it.body.insert(it.body.end(), carried.begin(), carried.end());
        demand_.vectors = std::max(demand_.vectors, static_cast<int>(holders_.size()));
    }

    // The register that a value takes: that of what is added to, if it is free then, as the
    // instruction writes there. Where all hold values, the one that is needed longest goes to the
    // stack; what is carried is read from its register.
    int held_at(int i, const RowPlace& wanted, const Uses& uses, std::vector<RowStep>& body) {
        auto place = std::find(holders_.begin(), holders_.end(), kNoValue);
        const bool has_one = wanted.kind == Kind::vectors;
        if (has_one && holders_[at(wanted.index)] == kNoValue)
            place = holders_.begin() + wanted.index;
        const bool may_grow = std::ssize(holders_) < most_vectors_;
        if (place == holders_.end() && may_grow) place = holders_.insert(place, kNoValue);
        if (place == holders_.end()) {
            const auto end_of = [&](int value) {
                return uses.carry[at(value)] == kNoValue ? uses.last[at(value)] : -1;
            };
            place = std::max_element(holders_.begin(), holders_.end(),
                                     [&](int a, int b) { return end_of(a) < end_of(b); });
            const RowPlace stack{.kind = Kind::stack, .index = plan_.stack_vectors++};
            body.push_back({.op = RowOp::keep, .to = stack, .from = {places_[at(*place)]}});
            places_[at(*place)] = stack;
        }
        *place = i;
        return static_cast<int>(place - holders_.begin());
    }

    // What no cache has: while the last pass that reads a tensor finds it in one, the next row is
    // on its way.
    void fetch_next_rows() {
        for (int i = 0; i < count_; ++i) {
            const RowInstruction& it = instruction(i);
            if (it.op != RowOp::load || spec_.operands[it.detail].shape != RowShape::tensor)
                continue;
            int last = passes_ - 1;
            while (last > 0 && !needed_[at(last)][at(i)]) --last;
            if (last == 0) continue;
            plan_.passes[at(last)].body.push_back(
                {.op = RowOp::fetch, .detail = it.detail, .offset = it.offset, .streams = true});
        }
    }

    // Loads of columns happen at the begin of a strip.
    bool hoisted(int i) {
        const RowInstruction& it = instruction(i);
        if (it.op == RowOp::carried || it.op == RowOp::last) return true;
        if (!plan_.by_strips || it.op != RowOp::load || !touches_column(spec_, it)) return false;
        if (held_ == most_held_) return false;
        ++held_;
        places_[at(i)] = {.kind = Kind::columns, .index = demand_.columns++};
        plan_.columns.push_back(placed(i));
        return true;
    }

    // A load that is an operand of the instruction that reads it, if nothing is written between.
    bool stays_in_place(int i, const Uses& uses) {
        const RowInstruction& it = instruction(i);
        const int reader = uses.last[at(i)];
        if (uses.count[at(i)] != 1 || reader == count_) return false;
        if (it.op != RowOp::load || spec_.operands[it.detail].dtype != DType::f32) return false;
        switch (instruction(reader).op) {
            case RowOp::add:
            case RowOp::subtract:
            case RowOp::multiply:
            case RowOp::divide:
            case RowOp::multiply_add:
            case RowOp::sum:
            case RowOp::sum_about:
            case RowOp::add_to_column: break;
            default: return false;
        }
        for (int between = i + 1; between < reader; ++between) {
            if (!has_result(instruction(between).op)) return false;
        }
        places_[at(i)] = {.kind = Kind::operand,
                          .index = it.detail,
                          .bits = static_cast<std::uint32_t>(it.offset)};
        demand_.operands = true;
        return true;
    }

    void finish_step(int i, RowStep& step, RowPass& pass, const Uses& uses) {
        if (is_reduction(step.op)) {
            step.to = {.kind = Kind::sums, .index = static_cast<int>(pass.reductions.size())};
            pass.reductions.push_back({step.op, step.to, places_[at(i)]});
        } else if (step.op == RowOp::add_to_column) {
            if (plan_.by_strips) step.to = sum_of(step);
        } else if (has_result(step.op)) {
            step.to = {.kind = Kind::vectors, .index = held_at(i, step.from[2], uses, pass.body)};
            places_[at(i)] = step.to;
        }
    }

    // Where a strip has the sum of a column, which several steps may add to.
    RowPlace sum_of(const RowStep& step) {
        for (const RowStep& it : plan_.columns) {
            const bool is_same = it.op == step.op && it.detail == step.detail;
            if (is_same && it.offset == step.offset) return it.to;
        }
        plan_.columns.push_back(step);
        return plan_.columns.back().to = {.kind = Kind::columns, .index = demand_.columns++};
    }

    RowStep placed(int i) const {
        const RowInstruction& it = instruction(i);
        RowStep step{.op = it.op, .to = places_[at(i)], .detail = it.detail, .offset = it.offset};
        step.streams = it.op == RowOp::store && it.bits != 0;
        step.exact = it.op == RowOp::store && exact_[at(it.inputs[0])];
        step.narrow = it.op == RowOp::activation && narrow_[at(i)];
        const auto& inputs = instruction(source(i)).inputs;
        for (std::size_t k = 0; k < inputs.size(); ++k) {
            if (inputs[k] != kNoValue) step.from[k] = places_[at(inputs[k])];
        }
        const bool turns = it.op == RowOp::add || it.op == RowOp::multiply || source(i) != i;
        if (turns && step.from[0].in_memory()) std::swap(step.from[0], step.from[1]);
        return step;
    }

    RowStep of_scratch(RowOp op, int i) const {
        RowStep step{.op = op, .detail = static_cast<std::uint8_t>(kept_[at(i)])};
        if (op == RowOp::keep) step.from[0] = places_[at(i)];
        return step;
    }

    void write_single_steps() {
        for (int i = 0; i < count_; ++i) {
            const RowOp op = instruction(i).op;
            if (runs_per_vector(i) || op == RowOp::constant) continue;
            auto& steps = once_[at(i)] ? plan_.once : plan_.passes[at(ready_[at(i)])].before;
            steps.push_back(placed(i));
        }
    }

    const RowSpec& spec_;
    int most_held_;
    int most_vectors_;
    int held_ = 0;
    std::vector<bool> uniform_;
    int count_;
    std::vector<std::int16_t> products_;  // that an instruction adds up itself
    std::vector<bool> exact_;             // what bfloat16 holds
    std::vector<bool> narrow_;            // what it alone takes
    RowPlan plan_;
    int passes_ = 0;
    RowDemand demand_;
    // Of each instruction.
    std::vector<int> pass_;
    std::vector<int> ready_;
    std::vector<int> costs_;
    std::vector<bool> once_;
    std::vector<int> kept_;
    std::vector<RowPlace> places_;
    std::vector<int> holders_;  // of each register in a pass the value, or none
    // Of each pass and instruction.
    std::vector<std::vector<bool>> needed_;
};

}  // namespace

RowPlan make_row_plan(const RowSpec& spec, Isa isa) {
    validate(spec);
    if (isa < Isa::avx2) throw std::invalid_argument("a plan of a row program needs vectors");
    const int narrowest = adds_repeatedly(spec) ? 1 : kNarrowestStrip;
    int held = adds_repeatedly(spec) ? 0 : kMostRowOperands;
    for (int vectors = std::numeric_limits<int>::max();;) {
        RowPlan plan = Planner(spec, isa, held, vectors).planned();
        const int width = plan.unroll * vector_file(isa).bytes / 4;
        if (plan.by_strips && width < (held > 0 ? kFewestInStrip : narrowest)) {
            held = std::min(held, columns_read(spec)) - 1;
        } else if (plan.unroll == 0) {
            vectors = vectors_that_fit(plan);
        } else {
            return plan;
        }
    }
}

}  // namespace dlprim
