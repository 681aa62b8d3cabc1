#include <random>
#include <string>

#include <doctest/doctest.h>

#include "lang/gradients.h"

namespace dlprim {
namespace {

TEST_CASE("every function with a derivative has the right one") {
    for (const char* const value : {"acos(a(i))",
                                    "acosh(2 + a(i))",
                                    "asin(a(i))",
                                    "asinh(a(i))",
                                    "atan(a(i))",
                                    "atan2(a(i), b(i))",
                                    "atanh(a(i))",
                                    "cbrt(a(i))",
                                    "ceil(a(i)) * a(i)",
                                    "copysign(a(i), b(i) - 2)",
                                    "cos(a(i))",
                                    "cosh(a(i))",
                                    "cospi(a(i))",
                                    "erf(a(i))",
                                    "erfc(a(i))",
                                    "exp(a(i))",
                                    "exp10(a(i))",
                                    "exp2(a(i))",
                                    "expm1(a(i))",
                                    "fabs(a(i) - b(i))",
                                    "fdim(a(i), b(i))",
                                    "fdivide(a(i), b(i))",
                                    "floor(a(i)) + a(i)",
                                    "fma(a(i), b(i), a(i))",
                                    "fmax(a(i), b(i)) * fmin(a(i), b(i))",
                                    "fmod(3 * a(i), b(i))",
                                    "3 * a(i) % b(i)",
                                    "gelu(a(i) - b(i))",
                                    "gelu_tanh(a(i) - b(i))",
                                    "hardsigmoid(a(i)) * hardswish(b(i))",
                                    "hypot(a(i), b(i))",
                                    "log(a(i))",
                                    "log10(a(i))",
                                    "log1p(a(i))",
                                    "log2(a(i))",
                                    "max(a(i), 0.5) + min(b(i), 0.5)",
                                    "mish(a(i) - b(i))",
                                    "normcdf(a(i))",
                                    "pow(a(i), b(i))",
                                    "pow(a(i), 3) + pow(b(i), -2) + pow(a(i), 1)",
                                    "rcbrt(a(i))",
                                    "relu(a(i) - b(i)) + relu6(b(i))",
                                    "rhypot(a(i), b(i))",
                                    "rint(a(i)) + round(a(i)) - trunc(b(i))",
                                    "rsqrt(a(i))",
                                    "sigmoid(a(i))",
                                    "sign(a(i)) * silu(a(i) - b(i))",
                                    "sin(a(i))",
                                    "sinh(a(i))",
                                    "sinpi(a(i))",
                                    "softplus(a(i) - b(i))",
                                    "arcsin(a(i)) * arctan2(a(i), b(i))",
                                    "sqrt(a(i))",
                                    "tan(a(i))",
                                    "tanh(a(i))",
                                    "float(a(i)) * double(b(i)) - -a(i)",
                                    "a(i) > b(i) ? a(i) * a(i) : b(i) / a(i)",
                                    "exp(sin(a(i)) * tanh(b(i))) / (1 + a(i))"}) {
        const std::string text = "y(i) = " + std::string(value) + " * (a(i) + b(i))";
        CAPTURE(text);
        std::mt19937 random(5);
        Arrays arrays;
        arrays["a"] = random_array({6}, random, 0.1, 0.95);
        arrays["b"] = random_array({6}, random, 0.1, 0.95);
        for (const char* const name : {"a", "b"}) check_gradient(text, arrays, name);
    }
}

// A smooth function of reads of x and w at places along i, j and k.
std::string random_value(std::mt19937& random, int depth) {
    const auto below = [&](int count) { return static_cast<int>(random() % count); };
    if (depth == 0) {
        const char* const reads[] = {"x(i,j+k)", "x(i,j)",      "x?(i-1,j-k+1)", "w(k)", "w(2*k)",
                                     "s",        "x?(k,2*j-1)", "w?(i+j-2*k)",   "w(j)", "0.5"};
        return reads[below(10)];
    }
    const std::string a = random_value(random, depth - 1), b = random_value(random, depth - 1);
    switch (below(8)) {
        case 0: return "(" + a + ") + " + b;
        case 1: return "(" + a + ") - (" + b + ")";
        case 2:
        case 3: return "(" + a + ") * (" + b + ")";
        case 4: return "tanh(" + a + ") * sigmoid(" + b + ")";
        case 5: return "exp(-(" + a + ") * (" + a + ")) / (2 + sin(" + b + "))";
        case 6: return "((" + a + ") > 0.05 ? gelu(" + a + ") : (" + b + "))";
        default: return "fmax(" + a + ", 2 * (" + b + ") + 0.05)";
    }
}

TEST_CASE("gradients of formulas that nobody wrote") {
    std::mt19937 random(11);
    for (int i = 0; i < 60; ++i) {
        const std::string text =
            "def f(float(N,M) x, float(K) w, float s) -> (t, y) {\n"
            "    t(i,j) +=! " +
            random_value(random, 2) +
            " + 0*k where i in 0:2, j in 0:3, k in 0:2\n"
            "    u(i,j) = t(i,j) * w(j) + 0.1 * s\n"
            "    u(i,j) += " +
            random_value(random, 2) +
            " + 0*k where k in 0:2\n"
            "    y(i) +=! tanh(u(i,j)) * t(i,j) }";
        CAPTURE(text);
        check_gradients(text, {{"x", {4, 5}}, {"w", {5}}, {"s", {}}});
    }
}

}  // namespace
}  // namespace dlprim
