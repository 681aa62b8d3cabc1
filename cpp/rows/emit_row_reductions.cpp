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

// The first half of the accumulators takes what follows the main loop, which starts the others.
void RowEmitter::start_reductions(const RowPass& pass, int from, int to) {
    for (const RowReduction& it : pass.reductions) {
        for (int lane = from; lane < to; ++lane) {
            const int index = register_of(it.accumulators, lane);
            if (it.op == RowOp::sum) {
                zero(index);
            } else {
                set(index, identity_of(it.op));
            }
        }
    }
}

void RowEmitter::accumulate(const RowStep& step, Lane lane) {
    const int to = register_of(step.to, lane.index);
    const int x = in_register(step.from[0], lane.index, 0);
    const bool of_products = step.from[1].kind != Kind::none;
    const auto sum = lane.masked && avx512() ? vector(to) | tail_mask() : vector(to);
    if (lane.masked && !avx512()) {
        if (of_products) {
            with(step.from[1], lane.index,
                 [&](const Xbyak::Operand& y) { vmulps(vector(0), vector(x), y); });
        }
        combined(step.op, vector(0), vector(to), vector(of_products ? 0 : x));
        load_tail_mask(1);
        vblendvps(vector(to), vector(to), vector(0), vector(1));
    } else if (of_products) {
        with(step.from[1], lane.index,
             [&](const Xbyak::Operand& y) { vfmadd231ps(sum, vector(x), y); });
    } else {
        combined(step.op, sum, vector(to), vector(x));
    }
}

// NaN in `other` is passed over by highest and lowest: min and max return their last operand then.
void RowEmitter::combined(RowOp op, const Vector& result, const Vector& value,
                          const Vector& other) {
    switch (op) {
        case RowOp::highest: return vmaxps(result, other, value);
        case RowOp::lowest: return vminps(result, other, value);
        default: return vaddps(result, value, other);
    }
}

// The accumulators from `lanes` on, as many again, go to those in front of them.
void RowEmitter::combine_lanes(const RowReduction& it, int lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
        const Vector to = vector(register_of(it.accumulators, lane));
        combined(it.op, to, to, vector(register_of(it.accumulators, lane + lanes)));
    }
}

// A chain ends: what sums have goes to their totals.
void RowEmitter::empty_sums(const RowPass& pass) {
    for (const RowReduction& it : pass.reductions) {
        if (it.op != RowOp::sum) continue;
        for (int half = plan_.unroll / 2; half > 0; half /= 2) combine_lanes(it, half);
        // Kahan's sum: beside the total is what rounding has added too much.
        const Vector chain = vector(register_of(it.accumulators, 0));
        const Vector total = vector(0), next = vector(1);
        const auto memory = ptr[stack_vector(it.total)];
        const auto excess = ptr[stack_vector(it.total + 1)];
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
        for (int lane = 0; lane < plan_.unroll; ++lane) zero(register_of(it.accumulators, lane));
    }
}

void RowEmitter::move_totals(const RowPass& pass, bool in) {
    for (const RowReduction& it : pass.reductions) {
        if (it.op != RowOp::sum) continue;
        const auto total = ptr[stack_vector(it.total)];
        if (in) {
            zero(0);
            vmovups(total, vector(0));
            vmovups(ptr[stack_vector(it.total + 1)], vector(0));
        } else {
            vmovups(vector(register_of(it.accumulators, 0)), total);
        }
    }
}

void RowEmitter::finish_reductions(const RowPass& pass) {
    for (const RowReduction& it : pass.reductions) {
        const int from = register_of(it.accumulators, 0);
        const bool on_stack = it.result.kind == Kind::stack;
        combine_across(it.op, from, on_stack ? from : it.result.index);
        if (on_stack) vmovups(ptr[stack_vector(it.result.index)], vector(from));
    }
}

// One half with the other, as long as there are two: the same additions as of whole vectors, in
// half the time. Of highest and lowest zeros, whose signs may differ, one is taken.
void RowEmitter::combine_across(RowOp op, int index, int to) {
    constexpr std::uint8_t kOtherHalf = 0b01001110, kNeighbour = 0b10110001;
    const Xbyak::Ymm half(index), other_half(0);
    const Xbyak::Xmm quarter(index), other(0);
    if (avx512()) {
        vextractf64x4(other_half, Xbyak::Zmm(index), 1);
        combined(op, half, half, other_half);
        vextractf32x4(other, half, 1);
    } else {
        vextractf128(other, half, 1);
    }
    combined(op, quarter, quarter, other);
    for (const std::uint8_t from : {kOtherHalf, kNeighbour}) {
        vpshufd(other, quarter, from);
        combined(op, quarter, quarter, other);
    }
    vbroadcastss(vector(to), quarter);
}

}  // namespace dlprim
