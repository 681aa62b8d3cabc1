// Sums and extremes along the row, of one or of many vectors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "rows/row_emitter.h"

namespace dlprim {
namespace {

using Kind = RowPlace::Kind;

float identity_of(RowOp op) {
    constexpr float kMost = std::numeric_limits<float>::infinity();
    if (op == RowOp::highest) return -kMost;
    return op == RowOp::lowest ? kMost : 0;
}

}  // namespace

int RowEmitter::accumulator(int reduction, int lane) const {
    return plan_.registers.accumulators + reduction * plan_.unroll + lane;
}

// Of the sums of a pass alone; a vector on the stack.
int RowEmitter::total_of(const RowPass& pass, std::size_t reduction) const {
    const auto end = pass.reductions.begin() + static_cast<std::ptrdiff_t>(reduction);
    return plan_.totals + 2 * static_cast<int>(std::count_if(
                                  pass.reductions.begin(), end,
                                  [](const RowReduction& it) { return it.op == RowOp::sum; }));
}

// The first half of the accumulators takes what follows the main loop, which starts the others.
void RowEmitter::start_reductions(const RowPass& pass, int from, int to) {
    for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
        const RowOp op = pass.reductions[i].op;
        for (int lane = from; lane < to; ++lane) {
            const int index = accumulator(static_cast<int>(i), lane);
            if (op == RowOp::sum) {
                zero(index);
            } else {
                set(index, identity_of(op));
            }
        }
    }
}

void RowEmitter::accumulate(const RowStep& step, Lane lane) {
    const int to = accumulator(step.to.index, lane.index);
    const int x = in_register(step.from[0], lane.index, 0);
    const bool of_products = step.from[1].kind != Kind::none;
    const auto sum = lane.masked && avx512() ? vector(to) | tail_mask() : vector(to);
    if (lane.masked && !avx512()) {
        if (of_products) {
            with(step.from[1], lane.index,
                 [&](const Xbyak::Operand& y) { vmulps(vector(0), vector(x), y); });
        }
        combined(step.op, vector(0), to, of_products ? 0 : x);
        load_tail_mask(1);
        vblendvps(vector(to), vector(to), vector(0), vector(1));
    } else if (of_products) {
        with(step.from[1], lane.index,
             [&](const Xbyak::Operand& y) { vfmadd231ps(sum, vector(x), y); });
    } else {
        combined(step.op, sum, to, x);
    }
}

// NaN in `other` is passed over by highest and lowest: min and max return their last operand then.
void RowEmitter::combined(RowOp op, const Vector& result, int value, int other) {
    switch (op) {
        case RowOp::highest: return vmaxps(result, vector(other), vector(value));
        case RowOp::lowest: return vminps(result, vector(other), vector(value));
        default: return vaddps(result, vector(value), vector(other));
    }
}

// The accumulators from `lanes` on, as many again, go to those in front of them.
void RowEmitter::combine_lanes(const RowPass& pass, int lanes) {
    for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
        const int reduction = static_cast<int>(i);
        for (int lane = 0; lane < lanes; ++lane) {
            combine(pass.reductions[i].op, accumulator(reduction, lane),
                    accumulator(reduction, lane + lanes));
        }
    }
}

// A chain ends: what sums have goes to their totals.
void RowEmitter::empty_sums(const RowPass& pass) {
    for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
        if (pass.reductions[i].op != RowOp::sum) continue;
        const int reduction = static_cast<int>(i);
        for (int half = plan_.unroll / 2; half > 0; half /= 2) {
            for (int lane = 0; lane < half; ++lane) {
                combine(RowOp::sum, accumulator(reduction, lane),
                        accumulator(reduction, lane + half));
            }
        }
        // Kahan's sum: beside the total is what rounding has added too much.
        const Vector chain = vector(accumulator(reduction, 0)), total = vector(0), next = vector(1);
        const auto memory = ptr[stack_vector(total_of(pass, i))];
        const auto excess = ptr[stack_vector(total_of(pass, i) + 1)];
        vsubps(chain, chain, excess);
        vmovups(total, memory);
        vaddps(next, total, chain);
        vsubps(total, next, total);
        vsubps(total, total, chain);
        vmovups(memory, next);
        // None where a number is infinite.
        vsubps(next, total, total);
        if (avx512()) {
            vcmpps(k2, next, next, kOrdered);
            vmovaps(total | k2 | T_z, total);
        } else {
            vcmpps(next, next, next, kOrdered);
            vandps(total, total, next);
        }
        vmovups(excess, total);
        for (int lane = 0; lane < plan_.unroll; ++lane) zero(accumulator(reduction, lane));
    }
}

void RowEmitter::move_totals(const RowPass& pass, bool in) {
    for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
        if (pass.reductions[i].op != RowOp::sum) continue;
        const auto total = ptr[stack_vector(total_of(pass, i))];
        if (in) {
            zero(0);
            vmovups(total, vector(0));
            vmovups(ptr[stack_vector(total_of(pass, i) + 1)], vector(0));
        } else {
            vmovups(vector(accumulator(static_cast<int>(i), 0)), total);
        }
    }
}

void RowEmitter::finish_reductions(const RowPass& pass) {
    for (std::size_t i = 0; i < pass.reductions.size(); ++i) {
        const auto& [op, result] = pass.reductions[i];
        const int to = accumulator(static_cast<int>(i), 0);
        combine_across(op, to);
        if (result.kind == Kind::stack) {
            vmovups(ptr[stack_vector(result.index)], vector(to));
        } else {
            copy(result.index, to);
        }
    }
}

// Every element with the one half a vector away, a quarter, and so on: sums are in all of them
// then, and of highest and lowest zeros, whose signs may differ, one is taken.
void RowEmitter::combine_across(RowOp op, int index) {
    constexpr std::uint8_t kOtherHalf = 0b01001110, kNeighbour = 0b10110001;
    const Vector value = vector(index), other = vector(0);
    if (avx512()) {
        for (const std::uint8_t from : {kOtherHalf, kNeighbour}) {
            vshuff64x2(Xbyak::Zmm(0), Xbyak::Zmm(index), Xbyak::Zmm(index), from);
            combine(op, index, 0);
        }
    } else {
        vperm2f128(Xbyak::Ymm(0), Xbyak::Ymm(index), Xbyak::Ymm(index), 1);
        combine(op, index, 0);
    }
    for (const std::uint8_t from : {kOtherHalf, kNeighbour}) {
        vpshufd(other, value, from);
        combine(op, index, 0);
    }
    if (op != RowOp::sum) vbroadcastss(value, Xbyak::Xmm(index));
}

}  // namespace dlprim
