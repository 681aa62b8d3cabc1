// Sums and extremes along the row, of one or of many vectors.
#include <algorithm>
#include <bit>
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
            if (is_sum(it.op)) {
                zero(index);
            } else {
                set(index, identity_of(it.op));
            }
        }
    }
}

void RowEmitter::accumulate(const RowStep& step, Lane lane) {
    if (step.op == RowOp::sum_about) return accumulate_about(step, lane);
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

// Vectors under way together are added up two by two and then lose the centre so many times, in
// one step: where all are the centre these powers of 2 of it are exact. The first accumulator has
// the sum, the others what is added up.
void RowEmitter::accumulate_about(const RowStep& step, Lane lane) {
    if (vectors_ == 1) return accumulate_one_about(step, lane);
    const auto index = static_cast<unsigned>(lane.index);
    const auto partial = [&](int depth) { return vector(register_of(step.to, 1 + depth)); };
    int depth = std::popcount(index);
    if (index % 2 == 0) {
        const Vector to = partial(depth);
        const int x = in_register(step.from[0], lane.index, to.getIdx());
        if (x != to.getIdx()) vmovaps(to, vector(x));
        return;
    }
    --depth;
    with(step.from[0], lane.index,
         [&](const Xbyak::Operand& x) { vaddps(partial(depth), partial(depth), x); });
    for (int merged = std::countr_one(index) - 1; merged > 0; --merged, --depth) {
        vaddps(partial(depth - 1), partial(depth - 1), partial(depth));
    }
    if (lane.index + 1 < vectors_) return;
    const Vector total = vector(register_of(step.to, 0));
    const int centre = in_register(step.from[1], lane.index, 0);
    vfnmadd231ps(partial(0), vector(centre), number(static_cast<float>(vectors_)));
    vaddps(total, total, partial(0));
}

void RowEmitter::accumulate_one_about(const RowStep& step, Lane lane) {
    const Vector total = vector(register_of(step.to, 0)), apart = vector(0);
    const int x = in_register(step.from[0], lane.index, 0);
    with(step.from[1], lane.index,
         [&](const Xbyak::Operand& centre) { vsubps(apart, vector(x), centre); });
    if (lane.masked && !avx512()) {
        load_tail_mask(1);
        vandps(apart, apart, vector(1));
    }
    vaddps(lane.masked && avx512() ? total | tail_mask() : total, total, apart);
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

// The accumulators from `lanes` on, as many again, go to those in front of them; of a sum about a
// centre there is one.
void RowEmitter::combine_lanes(const RowReduction& it, int lanes) {
    if (it.op == RowOp::sum_about) return;
    for (int lane = 0; lane < lanes; ++lane) {
        const Vector to = vector(register_of(it.accumulators, lane));
        combined(it.op, to, to, vector(register_of(it.accumulators, lane + lanes)));
    }
}

// A chain ends: what sums have goes to their totals.
void RowEmitter::empty_sums(const RowPass& pass) {
    for (const RowReduction& it : pass.reductions) {
        if (!is_sum(it.op)) continue;
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
        if (!is_sum(it.op)) continue;
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

void RowEmitter::finish_reductions(const RowPass& pass, int elements) {
    for (const RowReduction& it : pass.reductions) {
        const int from = register_of(it.accumulators, 0);
        const bool on_stack = it.result.kind == Kind::stack;
        combine_across(it.op, from, on_stack ? from : it.result.index, elements);
        if (on_stack) vmovups(ptr[stack_vector(it.result.index)], vector(from));
    }
}

// One half with the other, as long as there are two: the same additions as of whole vectors, in
// half the time; what lies behind `elements` changes nothing. Of highest and lowest zeros, whose
// signs may differ, one is taken.
void RowEmitter::combine_across(RowOp op, int index, int to, int elements) {
    constexpr std::uint8_t kOtherHalf = 0b01001110, kNeighbour = 0b10110001;
    const Xbyak::Ymm half(index), other_half(0);
    const Xbyak::Xmm quarter(index), other(0);
    if (elements > 8) {
        vextractf64x4(other_half, Xbyak::Zmm(index), 1);
        combined(op, half, half, other_half);
    }
    if (elements > 4) {
        avx512() ? vextractf32x4(other, half, 1) : vextractf128(other, half, 1);
        combined(op, quarter, quarter, other);
    }
    for (const std::uint8_t from : {kOtherHalf, kNeighbour}) {
        vpshufd(other, quarter, from);
        combined(op, quarter, quarter, other);
    }
    vbroadcastss(vector(to), quarter);
}

}  // namespace dlprim
