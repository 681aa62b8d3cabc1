#include "rows/row_registers.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>

#include "jit/activation.h"

namespace dlprim {
namespace {

using Kind = RowPlace::Kind;

// Vectors under way together: enough for the latency of one sum, or of one long polynomial. Of more
// sums fewer will do, and leave registers to single values, for which rows wait.
constexpr int kMostUnrolledHeavy = 4;
// Steps of a body, all vectors together: more take longer to generate than they gain.
constexpr std::size_t kMostSteps = 256;
// With polynomials. Vectors that take turns store to all results at once, and where these are many
// that takes longer than the turns save.
constexpr std::int64_t kFewOperands = 16;

constexpr int kNoPass = -1;
constexpr int kUnknown = -2;

template <class Body>
void for_steps(RowPlan& plan, const Body& body) {
    for (RowStep& step : plan.once) body(step);
    for (RowStep& step : plan.carried) body(step);
    for (RowStep& step : plan.columns) body(step);
    for (RowPass& pass : plan.passes) {
        for (RowStep& step : pass.before) body(step);
        for (RowStep& step : pass.body) body(step);
    }
}

// Sums of one pass are gone in the next.
void place_totals(RowPlan& plan) {
    const int first = plan.stack_vectors;
    for (RowPass& pass : plan.passes) {
        int next = first;
        for (RowReduction& reduction : pass.reductions) {
            reduction.total = next;
            if (is_sum(reduction.op)) next += 2;
        }
        plan.stack_vectors = std::max(plan.stack_vectors, next);
    }
}

// A value that all vectors share: how often their steps read it, and the pass in front of which
// alone it is made and read, or none.
struct Single {
    int uses = 0;
    int pass = kUnknown;
    RowPlace place;
};

std::vector<Single> singles_of(const RowPlan& plan, int count) {
    std::vector<Single> singles(at(count));
    const auto mention = [&](const RowPlace& place, int pass, int uses) {
        if (place.kind != Kind::single) return;
        Single& it = singles[at(place.index)];
        it.uses += uses;
        it.pass = it.pass == kUnknown || it.pass == pass ? pass : kNoPass;
    };
    const auto mention_all = [&](const RowStep& step, int pass, int uses) {
        mention(step.to, pass, 0);
        for (const RowPlace& place : step.from) mention(place, pass, uses);
    };
    for (const RowStep& step : plan.once) mention_all(step, kNoPass, 0);
    for (int pass = 0; pass < static_cast<int>(plan.passes.size()); ++pass) {
        const RowPass& it = plan.passes[at(pass)];
        for (const RowStep& step : it.before) mention_all(step, pass, 0);
        for (const RowStep& step : it.body) mention_all(step, kNoPass, 1);
        for (const RowReduction& reduction : it.reductions) mention(reduction.result, pass + 1, 0);
    }
    return singles;
}

// What holds nothing between two passes: vectors but the first, through which values of the stack
// are made, and accumulators but those that have the sums.
std::vector<int> free_between_passes(const RowPlan& plan) {
    const RowRegisters& map = plan.registers;
    std::vector<int> free;
    for (int index = map.vectors + 1; index < map.columns; ++index) free.push_back(index);
    for (int index = map.accumulators; index < map.singles; ++index) {
        if ((index - map.accumulators) % plan.unroll != 0) free.push_back(index);
    }
    return free;
}

// Values that are read between two passes alone go to what is free there. Registers that are left
// go to the others that are read most.
void deal_singles(RowPlan& plan, int count) {
    const int all = vector_file(plan.isa).registers;
    std::vector<Single> singles = singles_of(plan, count);
    const std::vector<int> free = free_between_passes(plan);
    std::vector<std::size_t> taken(plan.passes.size() + 1, 0);
    std::vector<Single*> order;
    for (Single& it : singles) order.push_back(&it);
    std::stable_sort(order.begin(), order.end(),
                     [](const Single* a, const Single* b) { return a->uses > b->uses; });
    int next = plan.registers.singles;
    for (Single* const it : order) {
        if (it->pass >= 0 && taken[at(it->pass)] < free.size()) {
            it->place = {.kind = Kind::single, .index = free[taken[at(it->pass)]++]};
        } else if (next < all) {
            it->place = {.kind = Kind::single, .index = next++};
        } else {
            it->place = {.kind = Kind::stack, .index = plan.stack_vectors++};
        }
    }
    plan.registers.total = next;
    const auto deal = [&](RowPlace& place) {
        if (place.kind == Kind::single) place = singles[at(place.index)].place;
    };
    for_steps(plan, [&](RowStep& step) {
        deal(step.to);
        for (RowPlace& place : step.from) deal(place);
    });
    for (RowPass& pass : plan.passes) {
        for (RowReduction& reduction : pass.reductions) deal(reduction.result);
    }
}

// Those that vectors' steps read.
template <class Body>
void for_constants(RowPlan& plan, const Body& body) {
    for (RowPass& pass : plan.passes) {
        for (RowStep& step : pass.body) {
            for (RowPlace& place : step.from) {
                if (place.kind == Kind::constant && !is_shift(step)) body(place);
            }
        }
    }
}

// By their bits, how many steps read each.
std::map<std::uint32_t, int> uses_of_constants(RowPlan& plan) {
    std::map<std::uint32_t, int> uses;
    for_constants(plan, [&](const RowPlace& place) { ++uses[place.bits]; });
    return uses;
}

// What is left goes to the constants that are read most.
void deal_constants(RowPlan& plan) {
    std::map<std::uint32_t, int> uses = uses_of_constants(plan);
    while (plan.registers.total < vector_file(plan.isa).registers && !uses.empty()) {
        const auto most =
            std::max_element(uses.begin(), uses.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        RowStep step{.op = RowOp::constant,
                     .to = {.kind = Kind::single, .index = plan.registers.total++}};
        step.from[0] = {.kind = Kind::constant, .bits = most->first};
        plan.once.push_back(step);
        for_constants(plan, [&](RowPlace& place) {
            if (place.bits == most->first) place = step.to;
        });
        uses.erase(most);
    }
}

// That a step overwrites beside its result.
int scratch_registers(const RowStep& step, const RowSpec& spec, Isa isa) {
    const bool avx2 = isa < Isa::avx512;
    switch (step.op) {
        case RowOp::store:
            // The value itself stays as it is, and rounding takes two more.
            return size_of(spec.operands[step.detail].dtype) < 4 ? 3 : 2;
        case RowOp::rounded: return 3;
        case RowOp::logarithm:
        case RowOp::high_product:
        case RowOp::rare:
        case RowOp::add_chosen: return 4;
        case RowOp::select:
            return static_cast<Comparison>(step.detail) == Comparison::beats && avx2 ? 3 : 2;
        case RowOp::divide:
        case RowOp::multiply_add:
        case RowOp::low_product:
        case RowOp::exclusive_or:
        case RowOp::add_to_column: return 2;
        case RowOp::gate:
        case RowOp::store_bits:
        case RowOp::sum:
        case RowOp::sum_about:
        case RowOp::highest:
        case RowOp::lowest: return avx2 ? 2 : 1;
        default: return 1;
    }
}

// The same of a function of which several vectors may take the steps in turns.
int curve_registers(const RowStep& step) {
    if (step.op == RowOp::exponential) return kExponentialRegisters;
    if (step.op != RowOp::activation) return 0;
    return activation_registers(static_cast<Activation>(step.detail));
}

}  // namespace

bool assign_registers(RowPlan& plan, const RowDemand& demand) {
    const int all = vector_file(plan.isa).registers;
    int scratch = 1, of_turn = 0, accumulators = 0;
    for_steps(plan, [&](const RowStep& step) {
        scratch = std::max(scratch, scratch_registers(step, plan.spec, plan.isa));
        of_turn = std::max(of_turn, curve_registers(step));
    });
    std::size_t steps = 0;
    for (const RowPass& pass : plan.passes) {
        steps = std::max(steps, pass.body.size());
        accumulators = std::max(accumulators, static_cast<int>(pass.reductions.size()));
    }
    const auto& all_steps = plan.spec.instructions;
    const bool heavy = std::any_of(all_steps.begin(), all_steps.end(), has_polynomial);
    // On the stack there is room for the values of one vector.
    const bool turns = heavy && plan.stack_vectors == 0;
    const auto at_unroll = [&](int unroll, int curves = 1) {
        RowRegisters map;
        map.operand = std::max(scratch, of_turn * curves + (curves > 1 ? 1 : 0));
        map.vectors = map.operand + (demand.operands ? 1 : 0);
        map.columns = map.vectors + std::max(demand.vectors, 1) * (turns ? unroll : 1);
        map.accumulators = map.columns + demand.columns * unroll;
        map.singles = map.accumulators + accumulators * unroll;
        return map;
    };
    plan.takes_turns = turns;
    plan.unroll = plan.spec.most_vectors;
    if (heavy || accumulators > 1) plan.unroll = std::min(plan.unroll, kMostUnrolledHeavy);
    if (heavy && std::ssize(plan.spec.operands) > kFewOperands) plan.unroll = 1;
    const auto is_too_much = [&](int unroll) {
        return at_unroll(unroll).singles > all || steps * at(unroll) > kMostSteps;
    };
    while (plan.unroll > 1 && is_too_much(plan.unroll)) plan.unroll /= 2;
    // As many vectors as can take the steps of a function in turns: three are faster than four of
    // which two do. Sums are added up by halves.
    const int others = demand.singles + static_cast<int>(uses_of_constants(plan).size());
    for (int count = turns && of_turn > 0 ? plan.unroll : 1; count > plan.curves; --count) {
        const bool has_halves = std::has_single_bit(static_cast<unsigned>(count));
        if (accumulators > 0 && !has_halves) continue;
        if (at_unroll(count, count).singles + others <= all) plan.unroll = plan.curves = count;
    }
    plan.registers = at_unroll(plan.unroll, plan.curves);
    if (plan.registers.singles > all) return false;
    place_totals(plan);
    deal_singles(plan, demand.singles);
    deal_constants(plan);
    return true;
}

// Of a plan that needs too many registers.
int vectors_that_fit(const RowPlan& plan) {
    constexpr int kFewest = 4;
    const RowRegisters& map = plan.registers;
    const int all = vector_file(plan.isa).registers;
    const int vectors = map.columns - map.vectors - (map.singles - all);
    if (vectors < kFewest) {
        throw std::invalid_argument("a row program needs " + std::to_string(map.singles) +
                                    " registers, expected at most " + std::to_string(all));
    }
    return vectors;
}

}  // namespace dlprim
