// Operations of a row program on values in registers, and sums along rows.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "rows/row_emitter.h"

namespace dlprim {
namespace {

using Kind = RowPlace::Kind;

// Their sum is ln 2; the first has so few bits that its products with exponents are exact.
constexpr float kLn2High = 0x1.62e4p-1F;
constexpr float kLn2Low = 0x1.7f7d1cp-20F;
constexpr std::uint32_t kExponentBias = 127;
constexpr std::uint8_t kExponentShift = 23;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What the instruction calls comparisons.
constexpr std::uint8_t kEqual = 0, kLess = 1, kLessEqual = 2, kUnordered = 3, kNotAtLeast = 9;

std::uint8_t code_of(Comparison comparison) {
    switch (comparison) {
        case Comparison::equal: return kEqual;
        case Comparison::less: return kLess;
        case Comparison::less_equal: return kLessEqual;
        default: return kUnordered;
    }
}

// Where the argument of a function compares so, the function is `value`.
struct Edge {
    std::uint8_t code;
    float than;
    float value;
};

float identity_of(RowOp op) {
    if (op == RowOp::highest) return -kInfinity;
    return op == RowOp::lowest ? kInfinity : 0;
}

}  // namespace

int RowEmitter::register_of(const RowPlace& place, int lane) const {
    const RowRegisters& map = plan_.registers;
    switch (place.kind) {
        case Kind::vectors:
            if (!plan_.takes_turns) return map.vectors + place.index;
            return map.vectors + place.index * plan_.unroll + lane;
        case Kind::columns: return map.columns + place.index * plan_.unroll + lane;
        default: return place.index;
    }
}

// The register of a value, which is brought to `scratch` where it has none.
int RowEmitter::in_register(const RowPlace& place, int lane, int scratch) {
    if (place.kind == Kind::constant) {
        load_constant(scratch, place.bits);
        return scratch;
    }
    if (place.kind == Kind::stack) {
        vmovups(vector(scratch), ptr[stack_vector(place.index)]);
        return scratch;
    }
    if (place.kind == Kind::operand) {
        load_elements_of(place.index, scratch, {lane, masked_});
        return scratch;
    }
    return register_of(place, lane);
}

Xbyak::Address RowEmitter::number(float value) {
    return constant(std::bit_cast<std::uint32_t>(value));
}

void RowEmitter::set(int to, float value) {
    load_constant(to, std::bit_cast<std::uint32_t>(value));
}

void RowEmitter::operation(const RowStep& step, int to, int lane) {
    switch (step.op) {
        case RowOp::multiply_add: return multiply_and_add(step, to, lane);
        case RowOp::select: return select(step, to, lane);
        case RowOp::negate:
        case RowOp::absolute:
        case RowOp::square_root:
        case RowOp::exponential:
        case RowOp::logarithm:
        case RowOp::rounded:
        case RowOp::activation: return unary(step, to, lane);
        default: return arithmetic(step, to, lane);
    }
}

// Of single values one element is divided, or has its root taken, and is copied to the others:
// whole vectors take these units several times as long.
void RowEmitter::arithmetic(const RowStep& step, int to, int lane) {
    const Vector a = vector(in_register(step.from[0], lane, 0));
    const Vector d = vector(to);
    if (step.op == RowOp::divide && step.to.is_single()) {
        const int b = in_register(step.from[1], lane, 1);
        vdivss(Xbyak::Xmm(to), Xbyak::Xmm(a.getIdx()), Xbyak::Xmm(b));
        vbroadcastss(d, Xbyak::Xmm(to));
        return;
    }
    with(step.from[1], lane, [&](const Xbyak::Operand& b) {
        switch (step.op) {
            case RowOp::add: return vaddps(d, a, b);
            case RowOp::subtract: return vsubps(d, a, b);
            case RowOp::multiply: return vmulps(d, a, b);
            case RowOp::divide: return vdivps(d, a, b);
            case RowOp::smaller: return vminps(d, a, b);
            default: return vmaxps(d, a, b);
        }
    });
}

// The result takes the register of an operand where it can: the instruction has three.
void RowEmitter::multiply_and_add(const RowStep& step, int to, int lane) {
    RowPlace first = step.from[0];
    RowPlace second = step.from[1];
    const RowPlace& addend = step.from[2];
    if (first.in_memory()) std::swap(first, second);
    const Vector a = vector(in_register(first, lane, 0));
    const Vector d = vector(to);
    if (addend.in_memory()) {
        const Vector b = vector(in_register(second, lane, a.getIdx() == 0 ? 1 : 0));
        if (to != a.getIdx() && to != b.getIdx()) vmovaps(d, a);
        const Vector& other = to == b.getIdx() && to != a.getIdx() ? a : b;
        with(addend, lane, [&](const Xbyak::Operand& c) { vfmadd213ps(d, other, c); });
        return;
    }
    const Vector c = vector(register_of(addend, lane));
    with(second, lane, [&](const Xbyak::Operand& b) {
        if (to == a.getIdx() && to != c.getIdx()) return vfmadd132ps(d, c, b);
        if (!second.in_memory() && to == register_of(second, lane) && to != c.getIdx()) {
            return vfmadd213ps(d, a, c);
        }
        if (to != c.getIdx()) vmovaps(d, c);
        vfmadd231ps(d, a, b);
    });
}

void RowEmitter::unary(const RowStep& step, int to, int lane) {
    const int x = in_register(step.from[0], lane, to);
    const Vector d = vector(to);
    switch (step.op) {
        case RowOp::negate: return vxorps(d, vector(x), constant(0x80000000U));
        case RowOp::absolute: return vandps(d, vector(x), constant(0x7FFFFFFFU));
        case RowOp::square_root:
            if (!step.to.is_single()) return vsqrtps(d, vector(x));
            vsqrtss(Xbyak::Xmm(to), Xbyak::Xmm(x), Xbyak::Xmm(x));
            return vbroadcastss(d, Xbyak::Xmm(to));
        case RowOp::exponential: return exponential(to, x);
        case RowOp::logarithm: return logarithm(to, x);
        default: break;
    }
    if (step.op == RowOp::rounded && has_bf16()) {
        narrow(to, x);
        vpmovzxwd(d, Xbyak::Ymm(to));
        return shift_words_left(to, 16);
    }
    if (to != x) copy(to, x);
    if (step.op == RowOp::rounded) {
        round_to_bf16(to, 1);
        return shift_words_left(to, 16);
    }
    activate(static_cast<Activation>(step.detail), to, 0);
}

void RowEmitter::select(const RowStep& step, int to, int lane) {
    const int a = in_register(step.from[0], lane, 0);
    with(step.from[1], lane, [&](const Xbyak::Operand& b) {
        const std::uint8_t code = code_of(static_cast<Comparison>(step.detail));
        if (avx512()) {
            vcmpps(k2, vector(a), b, code);
        } else {
            vcmpps(vector(1), vector(a), b, code);
        }
    });
    const int otherwise = in_register(step.from[3], lane, 0);
    with(step.from[2], lane, [&](const Xbyak::Operand& then) {
        if (avx512()) {
            vblendmps(vector(to) | k2, vector(otherwise), then);
        } else {
            vblendvps(vector(to), vector(otherwise), then, vector(1));
        }
    });
}

// By Horner's rule; terms from the highest power down.
void RowEmitter::polynomial_of(int to, int x, std::initializer_list<float> terms) {
    set(to, *terms.begin());
    for (const auto* term = terms.begin() + 1; term != terms.end(); ++term) {
        vfmadd213ps(vector(to), vector(x), number(*term));
    }
}

// e^x = 2^n e^r with r = x - n ln 2, |r| < 0.35: within 1 ULP of the exact value.
void RowEmitter::exponential(int to, int x) {
    constexpr float kLog2OfE = 0x1.715476p+0F;
    // Beyond these it is infinite, or 0.
    constexpr float kMost = 89;
    constexpr float kLeast = -104;
    // Added to a number it leaves the nearest integer in the last bits.
    constexpr float kToInteger = 0x1.8p+23F;
    const Vector r = vector(0), n = vector(1), p = vector(2);
    // min and max return their last operand where one is NaN.
    set(0, kMost);
    vminps(r, r, vector(x));
    set(1, kLeast);
    vmaxps(r, n, r);
    set(1, kToInteger);
    vfmadd231ps(n, r, number(kLog2OfE));
    vsubps(n, n, number(kToInteger));
    vfnmadd231ps(r, n, number(kLn2High));
    vfnmadd231ps(r, n, number(kLn2Low));
    polynomial_of(
        2, 0,
        {0x1.6a1f5ap-10F, 0x1.123ccap-7F, 0x1.555904p-5F, 0x1.55548ep-3F, 0x1.fffffcp-2F, 1, 1});
    scale_by_power(2, 1, 0);
    if (to != p.getIdx()) vmovaps(vector(to), p);
}

// Times 2^exponent, which is an integer as float32 and may lie so far out that the result is
// subnormal: then it is rounded once. AVX2 does it in two steps, of which the first is exact.
void RowEmitter::scale_by_power(int to, int exponent, int scratch) {
    const Vector d = vector(to), n = vector(exponent), half = vector(scratch);
    if (avx512()) {
        vscalefps(d, d, n);
        return;
    }
    vcvtps2dq(n, n);
    vpsrad(half, n, 1);
    vpsubd(n, n, half);
    for (const Vector& part : {half, n}) {
        vpaddd(part, part, constant(kExponentBias));
        vpslld(part, part, kExponentShift);
        vmulps(d, d, part);
    }
}

// x = 2^n (1 + t) with t in [-1/3, 1/3): n ln 2 + t - t^2 / 2 + t^3 P(t), within 1.5 ULP.
void RowEmitter::logarithm(int to, int x) {
    constexpr std::uint32_t kTwoThirds = 0x3F2AAAABU;
    const Vector t = vector(0), n = vector(1), p = vector(2), kept = vector(3), d = vector(to);
    vmovaps(kept, vector(x));
    // Subnormal numbers get 24 bits more, and n as many less.
    vmulps(t, kept, number(0x1p24F));
    zero(1);
    set(2, 0x1p-126F);
    choose(kLess, p, t, kept, t);
    set(2, 0x1p-126F);
    choose(kLess, p, n, n, number(-24));
    // The exponent of x / (2/3) goes to n, and out of t.
    load_constant(2, kTwoThirds);
    vpsubd(p, t, p);
    vpsrad(p, p, kExponentShift);
    vcvtdq2ps(d, p);
    vaddps(n, n, d);
    vpslld(p, p, kExponentShift);
    vpsubd(t, t, p);
    vsubps(t, t, number(1));
    polynomial_of(2, 0,
                  {-0x1.080454p-3F, 0x1.1e6688p-3F, -0x1.f311c8p-4F, 0x1.1ed722p-3F,
                   -0x1.559dc6p-3F, 0x1.99d028p-3F, -0x1.fffefp-3F, 0x1.555506p-2F, -0.5F});
    vmulps(d, t, t);
    vmulps(p, p, d);
    vfmadd231ps(p, n, number(kLn2Low));
    vaddps(d, t, p);
    vfmadd231ps(d, n, number(kLn2High));
    for (const auto& [code, than, value] :
         {Edge{kEqual, 0, -kInfinity}, {kNotAtLeast, 0, kNan}, {kEqual, kInfinity, kInfinity}}) {
        set(2, than);
        choose(code, p, d, d, number(value));
    }
}

// `then` where the copy of x in scratch 3 compares with `than`, which is overwritten.
void RowEmitter::choose(std::uint8_t code, const Vector& than, const Vector& to,
                        const Vector& otherwise, const Xbyak::Operand& then) {
    if (avx512()) {
        vcmpps(k2, vector(3), than, code);
        vblendmps(to | k2, otherwise, then);
    } else {
        vcmpps(than, vector(3), than, code);
        vblendvps(to, otherwise, then, than);
    }
}

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
            vcmpps(k2, next, next, kEqual);
            vmovaps(total | k2 | T_z, total);
        } else {
            vcmpps(next, next, next, kEqual);
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
