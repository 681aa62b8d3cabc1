// Activations on float32 values in registers, for the epilogue of a kernel. Every function is one
// straight line of vector arithmetic without branches, gathers, opmasks or general registers, the
// same on AVX2 and AVX-512, and within 4 ULP of the exact value for every float there is:
// subnormal inputs and results, both zeros and both infinities; NaN stays NaN.
//
// At the bottom of each is an exponential: a power of two times a polynomial. What keeps the tails
// exact is the arithmetic around it. The exponent is reduced together with the rounding errors of
// the products that make it, and the power of two is 2^64 too large up to the last instruction, so
// that nothing but the result can be subnormal. Formulas: docs/lab/2026-11-29-inside.md.
//
// gelu that is stored as bfloat16 at once has fewer terms, and 20 bits before it is rounded.
#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "jit/activation.h"
#include "jit/dtype.h"
#include "jit/vector_assembler.h"

namespace dlprim {

class ActivationAssembler : public VectorAssembler {
public:
    using VectorAssembler::VectorAssembler;

protected:
    // Replaces `count` registers from `value` on by their activations, to be stored as `stored`,
    // and overwrites so many times activation_registers() of them from `scratch` on, nothing else.
    // They take their steps in turns: the chain of one is longer than what a CPU has under way.
    void activate(Activation activation, int value, int scratch, int count, DType stored);

    // The same of e^x, within 1 ULP, with kExponentialRegisters.
    void exponential(int value, int scratch, int count = 1);

    using CodeGenerator::vaddps;
    using CodeGenerator::vandps;
    using CodeGenerator::vdivps;
    using CodeGenerator::vfmadd213ps;
    using CodeGenerator::vfmadd231ps;
    using CodeGenerator::vfmsub231ps;
    using CodeGenerator::vfnmadd231ps;
    using CodeGenerator::vfnmsub213ps;
    using CodeGenerator::vfnmsub231ps;
    using CodeGenerator::vmaxps;
    using CodeGenerator::vminps;
    using CodeGenerator::vmulps;
    using CodeGenerator::vorps;
    using CodeGenerator::vsubps;
    using VectorAssembler::relu;
    using VectorAssembler::zero;

private:
    // A register of each vector that takes its turn: one behind the other.
    struct Lanes {
        int first;
        int count;

        int at(int lane) const { return first + lane; }
        Lanes behind(int roles) const { return {first + roles * count, count}; }
    };

    // What an instruction reads last: registers, or a number for all lanes.
    struct Source {
        Source(Lanes registers) : lanes(registers) {}    // NOLINT
        Source(float value) : lanes{}, number(value) {}  // NOLINT

        Lanes lanes;
        std::optional<float> number = {};
    };

    void relu6(Lanes x, Lanes scratch);
    void sigmoid(Lanes x, Lanes scratch);
    void hardsigmoid(Lanes x, Lanes scratch);
    void tanh(Lanes x, Lanes scratch);
    void gelu(Lanes x, Lanes scratch);
    void gelu_of_bf16(Lanes x, Lanes scratch);
    void gelu_tanh(Lanes x, Lanes scratch);
    void swish(Lanes x, Lanes scratch);
    void hardswish(Lanes x, Lanes gate);

    void split_sides(Lanes x, Lanes t, Lanes zeros, float most);
    void join_sides(Lanes x, Lanes tail);
    void logistic_tail(Lanes t, Lanes r, Lanes scale, Lanes free);
    void logistic_denominator(Lanes denominator, Lanes exponential);
    void power_of_two(Lanes rounded);
    void exp2_less_one(Lanes result, Lanes x);
    void polynomial(Lanes result, Lanes x, std::initializer_list<float> terms);

    void scale_by_power(Lanes to, Lanes x, Lanes exponents, Lanes scratch);

    void set(Lanes to, float value);
    void zero(Lanes to);
    void relu(Lanes x, Lanes zeros);
    void shift_left(Lanes x, std::uint8_t bits);

    // A number that one vector reads comes from memory; several find it in a register, as there
    // are fewer loads in a cycle than operations.
    template <class Instruction>
    void each(Instruction instruction, Lanes d, Lanes a, const Source& b) {
        if (b.number && d.count == 1) {
            return (this->*instruction)(vector(d.first), vector(a.first), number(*b.number));
        }
        if (b.number) load_constant(spare_, std::bit_cast<std::uint32_t>(*b.number));
        for (int lane = 0; lane < d.count; ++lane) {
            const int other = b.number ? spare_ : b.lanes.at(lane);
            (this->*instruction)(vector(d.at(lane)), vector(a.at(lane)), vector(other));
        }
    }

    void vaddps(Lanes d, Lanes a, const Source& b) { each(&CodeGenerator::vaddps, d, a, b); }
    void vandps(Lanes d, Lanes a, const Source& b) { each(&CodeGenerator::vandps, d, a, b); }
    void vdivps(Lanes d, Lanes a, const Source& b) { each(&CodeGenerator::vdivps, d, a, b); }
    void vminps(Lanes d, Lanes a, const Source& b) { each(&CodeGenerator::vminps, d, a, b); }
    void vmulps(Lanes d, Lanes a, const Source& b) { each(&CodeGenerator::vmulps, d, a, b); }
    void vorps(Lanes d, Lanes a, const Source& b) { each(&CodeGenerator::vorps, d, a, b); }
    void vsubps(Lanes d, Lanes a, const Source& b) { each(&CodeGenerator::vsubps, d, a, b); }
    void vfmadd213ps(Lanes d, Lanes a, const Source& b) {
        each(&CodeGenerator::vfmadd213ps, d, a, b);
    }
    void vfmadd231ps(Lanes d, Lanes a, const Source& b) {
        each(&CodeGenerator::vfmadd231ps, d, a, b);
    }
    void vfmsub231ps(Lanes d, Lanes a, const Source& b) {
        each(&CodeGenerator::vfmsub231ps, d, a, b);
    }
    void vfnmadd231ps(Lanes d, Lanes a, const Source& b) {
        each(&CodeGenerator::vfnmadd231ps, d, a, b);
    }
    void vfnmsub213ps(Lanes d, Lanes a, const Source& b) {
        each(&CodeGenerator::vfnmsub213ps, d, a, b);
    }
    void vfnmsub231ps(Lanes d, Lanes a, const Source& b) {
        each(&CodeGenerator::vfnmsub231ps, d, a, b);
    }
    void vmaxps(Lanes d, Lanes a, const Source& b) { each(&CodeGenerator::vmaxps, d, a, b); }

    int spare_ = 0;
};

}  // namespace dlprim
