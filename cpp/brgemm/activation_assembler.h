// Activations on float32 values in registers, for the epilogue of a kernel. Every function is one
// straight line of vector arithmetic without branches, gathers or general registers, the same on
// AVX2 and AVX-512, and at most 4 ULP from the exact value for every float there is: subnormal
// inputs and results, both zeros and both infinities; NaN stays NaN.
//
// The exponential at the bottom of each is one power of two times a polynomial. What makes the
// tails exact is the order of the rest: the argument is reduced with the error of its products,
// and the power of two is kept 2^64 too large until the last instruction, so that only the result
// can be subnormal. docs/kernel.md has the formulas.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "brgemm/spec.h"
#include "brgemm/vector_assembler.h"

namespace dlprim {

class ActivationAssembler : public VectorAssembler {
public:
    using VectorAssembler::VectorAssembler;

protected:
    // Replaces the register `value` by its activation and overwrites activation_registers()
    // registers from `scratch` on, nothing else.
    void activate(Activation activation, int value, int scratch);

    // Places the constants that the activations refer to; call once, after the last instruction.
    void emit_activation_constants();

private:
    void sigmoid(const Vector& x, int scratch);
    void tanh(const Vector& x, int scratch);
    void gelu(const Vector& x, int scratch);
    void gelu_tanh(const Vector& x, int scratch);
    void swish(const Vector& x, int scratch);

    void split_sides(const Vector& x, const Vector& left, const Vector& zeros, float lowest);
    void join_sides(const Vector& x, const Vector& tail);
    void logistic_tail(const Vector& t, const Vector& r, const Vector& scale, const Vector& free);
    void logistic_denominator(const Vector& denominator, const Vector& exponential);
    void round(const Vector& integer, const Vector& scale);
    void power_of_two(const Vector& scale);
    void exp2_less_one(const Vector& result, const Vector& x);
    void polynomial(const Vector& result, const Vector& x, std::initializer_list<float> terms);

    void set(const Vector& to, float value);
    Xbyak::Address constant(float value);
    Xbyak::RegRip slot(float value);

    std::vector<std::uint32_t> constants_;  // bit patterns, each once
    Xbyak::Label table_;
};

}  // namespace dlprim
