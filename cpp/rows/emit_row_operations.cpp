// Operations of a row program on values in registers.
#include <algorithm>
#include <array>
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
constexpr std::uint8_t kExponentShift = 23;
constexpr std::uint8_t kToNearest = 8;  // even, without exceptions

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What the instruction calls comparisons.
constexpr std::uint8_t kEqual = 0, kLess = 1, kLessEqual = 2, kUnordered = 3, kNotAtLeast = 9;
constexpr std::uint8_t kNotAbove = 10, kAtLeast = 5;

// Of each Comparison; what beats a number is not above it, and no NaN: where it does not.
constexpr std::array kCodes = {kLess, kLessEqual, kEqual, kUnordered, kNotAbove, kAtLeast};

// Where the argument of a function compares so, the function is `value`.
struct Edge {
    std::uint8_t code;
    float than;
    float value;
};

}  // namespace

int RowEmitter::register_of(const RowPlace& place, int lane) const {
    const RowRegisters& map = plan_.registers;
    switch (place.kind) {
        case Kind::vectors:
            if (!plan_.takes_turns) return map.vectors + place.index;
            return map.vectors + place.index * plan_.unroll + lane;
        case Kind::columns: return map.columns + place.index * plan_.unroll + lane;
        case Kind::sums: return map.accumulators + place.index * plan_.unroll + lane;
        default: return place.index;
    }
}

// The register of a value, which is brought to `scratch` where it has none.
int RowEmitter::in_register(const RowPlace& place, int lane, int scratch) {
    if (place.kind == Kind::constant) {
        load_constant(scratch, place.bits);
    } else if (place.kind == Kind::stack) {
        vmovups(vector(scratch), ptr[stack_vector(place.index)]);
    } else if (place.kind == Kind::operand) {
        load_elements_of(place.index, static_cast<std::int32_t>(place.bits), scratch,
                         {lane, masked_});
    } else {
        return register_of(place, lane);
    }
    return scratch;
}

void RowEmitter::operation(const RowStep& step, int to, int lane) {
    switch (step.op) {
        case RowOp::multiply_add: return multiply_and_add(step, to, lane);
        case RowOp::select: return select(step, to, lane);
        case RowOp::low_product:
        case RowOp::high_product: return word_product(step, to, lane);
        case RowOp::exclusive_or: return exclusive_or(step, to, lane);
        case RowOp::rare: return rare(step, to, lane);
        default:
            return inputs_of(step.op) == 1 ? unary(step, to, lane) : arithmetic(step, to, lane);
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
            case RowOp::add_words: return vpaddd(d, a, b);
            default: return vmaxps(d, a, b);
        }
    });
}

// The upper halves are those of the products of elements with even numbers and with odd ones.
void RowEmitter::word_product(const RowStep& step, int to, int lane) {
    const Vector a = vector(in_register(step.from[0], lane, 0));
    const Vector d = vector(to), even = vector(2), odd = vector(3);
    if (is_shift(step)) {
        const auto bits = static_cast<std::uint8_t>(std::countr_zero(step.from[1].bits));
        if (step.op == RowOp::low_product) return vpslld(d, a, bits);
        return vpsrld(d, a, static_cast<std::uint8_t>(32 - bits));
    }
    const Vector b = vector(in_register(step.from[1], lane, 1));
    if (step.op == RowOp::low_product) return vpmulld(d, a, b);
    const bool is_same = step.from[1].is_single() || step.from[1].kind == Kind::constant;
    vpmuludq(even, a, b);
    vpsrlq(odd, a, 32);
    if (!is_same) vpsrlq(vector(1), b, 32);
    vpmuludq(d, odd, is_same ? b : vector(1));
    if (avx512()) {
        vmovshdup(d | k3, even);
    } else {
        vpsrlq(even, even, 32);
        vpblendd(d, d, even, 0x55);
    }
}

void RowEmitter::exclusive_or(const RowStep& step, int to, int lane) {
    const Vector a = vector(in_register(step.from[0], lane, 0));
    const Vector b = vector(in_register(step.from[1], lane, 1));
    const Vector d = vector(to), all = vector(0);
    with(step.from[2], lane, [&](const Xbyak::Operand& c) {
        if (avx512()) {
            constexpr std::uint8_t kOddOnes = 0x96;
            if (a.getIdx() != 0) vmovaps(all, a);
            vpternlogd(all, b, c, kOddOnes);
            vmovaps(d, all);
        } else {
            vpxor(all, a, b);
            vpxor(d, all, c);
        }
    });
}

// The result takes the register of an operand where it can: the instruction has three.
void RowEmitter::multiply_and_add(const RowStep& step, int to, int lane) {
    RowPlace first = step.from[0];
    RowPlace second = step.from[1];
    const RowPlace& addend = step.from[2];
    if (first.in_memory()) std::swap(first, second);
    const bool is_second = !second.in_memory() && register_of(second, lane) == to;
    const int loaded = addend.in_memory() && !is_second ? to : 0;
    const Vector a = vector(in_register(first, lane, loaded));
    const Vector d = vector(to);
    if (addend.in_memory()) {
        const Vector b = vector(in_register(second, lane, 1));
        if (to != a.getIdx() && !is_second) vmovaps(d, a);
        const Vector& other = is_second && to != a.getIdx() ? a : b;
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
        case RowOp::nearest:
            return avx512() ? vrndscaleps(d, vector(x), kToNearest)
                            : vroundps(d, vector(x), kToNearest);
        case RowOp::logarithm: return logarithm(to, x);
        default: break;
    }
    if (step.op == RowOp::rounded && DType{step.detail} == DType::f16) {
        if (to != x) copy(to, x);
        return round_to_f16(to);
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
    curve(step, to, 1);
}

// Of `count` registers from `value` on.
void RowEmitter::curve(const RowStep& step, int value, int count) {
    if (step.op == RowOp::exponential) return exponential(value, 0, count);
    const DType stored = step.narrow ? DType::bf16 : DType::f32;
    activate(static_cast<Activation>(step.detail), value, 0, count, stored);
}

void RowEmitter::curve_in_turns(const RowStep& step, int vectors) {
    compared_ = {};
    for (int lane = 0; lane < vectors; ++lane) {
        const int to = register_of(step.to, lane), x = in_register(step.from[0], lane, to);
        if (to != x) copy(to, x);
    }
    for (int lane = 0; lane < vectors; lane += plan_.curves) {
        curve(step, register_of(step.to, lane), std::min(plan_.curves, vectors - lane));
    }
}

// Two that choose by the same comparison, one after the other, make it once.
void RowEmitter::select(const RowStep& step, int to, int lane) {
    const auto comparison = static_cast<Comparison>(step.detail);
    const Compared it{step.from[0], step.from[1], comparison, lane};
    if (it != compared_) {
        const int a = in_register(step.from[0], lane, 0);
        with(step.from[1], lane,
             [&](const Xbyak::Operand& b) { compare(comparison, vector(a), b); });
    }
    const bool is_opposite = comparison == Comparison::beats;
    const int otherwise = in_register(step.from[is_opposite ? 2 : 3], lane, 0);
    with(step.from[is_opposite ? 3 : 2], lane, [&](const Xbyak::Operand& then) {
        blend(vector(to), vector(otherwise), then, vector(1));
    });
    const bool is_gone = step.to == step.from[0] || step.to == step.from[1];
    compared_ = is_gone ? Compared{} : it;
}

// In the mask that blends look at, or in vector 1.
void RowEmitter::compare(Comparison comparison, const Vector& a, const Xbyak::Operand& b) {
    const std::uint8_t code = kCodes.at(static_cast<std::size_t>(comparison));
    const Vector holds = vector(1), is_number = vector(2);
    if (comparison == Comparison::words_at_least) {
        if (avx512()) return vpcmpud(k2, a, b, code);
        vpmaxud(holds, a, b);
        return vpcmpeqd(holds, holds, a);
    }
    compare_floats(code, a, b, holds);
    if (comparison != Comparison::beats) return;
    if (avx512()) return vcmpps(k2 | k2, a, a, kOrdered);
    vcmpps(is_number, a, a, kOrdered);
    vandps(holds, holds, is_number);
}

// On AVX2 the vector `mask` has the result.
void RowEmitter::compare_floats(std::uint8_t code, const Vector& a, const Xbyak::Operand& b,
                                const Vector& mask) {
    avx512() ? vcmpps(k2, a, b, code) : vcmpps(mask, a, b, code);
}

// `then` where the comparison holds.
void RowEmitter::blend(const Vector& to, const Vector& otherwise, const Xbyak::Operand& then,
                       const Vector& mask) {
    avx512() ? vblendmps(to | k2, otherwise, then) : vblendvps(to, otherwise, then, mask);
}

// By Horner's rule; terms from the highest power down.
void RowEmitter::polynomial_of(int to, int x, std::initializer_list<float> terms) {
    set(to, *terms.begin());
    for (const auto* term = terms.begin() + 1; term != terms.end(); ++term) {
        vfmadd213ps(vector(to), vector(x), number(*term));
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
    compare_floats(kLess, kept, p, p);
    blend(t, kept, t, p);
    set(2, 0x1p-126F);
    compare_floats(kLess, kept, p, p);
    blend(n, n, number(-24), p);
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
        compare_floats(code, kept, p, p);
        blend(d, d, number(value), p);
    }
}

}  // namespace dlprim
