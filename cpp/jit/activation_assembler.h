// Activations on float32 values in registers, for the epilogue of a kernel. Every function is one
// straight line of vector arithmetic without branches, gathers, opmasks or general registers, the
// same on AVX2 and AVX-512, and within 4 ULP of the exact value for every float there is:
// subnormal inputs and results, both zeros and both infinities; NaN stays NaN.
//
// At the bottom of each is an exponential: a power of two times a polynomial. What keeps the tails
// exact is the arithmetic around it. The exponent is reduced together with the rounding errors of
// the products that make it, and the power of two is 2^64 too large up to the last instruction, so
// that nothing but the result can be subnormal. docs/kernel.md has the formulas.
#pragma once

#include <initializer_list>

#include "jit/activation.h"
#include "jit/vector_assembler.h"

namespace dlprim {

class ActivationAssembler : public VectorAssembler {
public:
    using VectorAssembler::VectorAssembler;

protected:
    // Replaces the register `value` by its activation and overwrites activation_registers()
    // registers from `scratch` on, nothing else.
    void activate(Activation activation, int value, int scratch);

private:
    void relu6(const Vector& x, int scratch);
    void sigmoid(const Vector& x, int scratch);
    void hardsigmoid(const Vector& x, int scratch);
    void tanh(const Vector& x, int scratch);
    void gelu(const Vector& x, int scratch);
    void gelu_tanh(const Vector& x, int scratch);
    void swish(const Vector& x, int scratch);
    void hardswish(const Vector& x, const Vector& gate);

    void split_sides(const Vector& x, const Vector& t, const Vector& zeros, float most);
    void join_sides(const Vector& x, const Vector& tail);
    void logistic_tail(const Vector& t, const Vector& r, const Vector& scale, const Vector& free);
    void logistic_denominator(const Vector& denominator, const Vector& exponential);
    void power_of_two(const Vector& rounded);
    void exp2_less_one(const Vector& result, const Vector& x);
    void polynomial(const Vector& result, const Vector& x, std::initializer_list<float> terms);

    void set(const Vector& to, float value);
};

}  // namespace dlprim
