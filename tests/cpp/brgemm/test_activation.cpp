// Activations of the epilogue against their definitions in double precision, whose own error is
// below 1e-5 ULP of float32. A kernel with beta 1 and an empty batch applies its activation to C
// and does nothing else, so C can hold any values there are.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "brgemm/brgemm.h"
#include "jit/element_reference.h"
#include "kernel_problem.h"

namespace dlprim {
namespace {

using testing::all_kernels;
using testing::skipped_levels;

constexpr double kMostUlps = 4;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();

// Measured over all 2^32 floats by "every float", the same on AVX2 and AVX-512: sigmoid 2.43 ULP,
// tanh 2.60, gelu 3.18, gelu_tanh 2.94, swish 2.73.
constexpr std::array kActivations = {
    Activation::sigmoid, Activation::tanh,  Activation::gelu,        Activation::gelu_tanh,
    Activation::swish,   Activation::relu6, Activation::hardsigmoid, Activation::hardswish};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

double exact(Activation activation, double x) {
    const bool gated = activation == Activation::gelu || activation == Activation::gelu_tanh ||
                       activation == Activation::swish;
    if (gated && x < -1000) return -0.0;  // what x times 0 tends to
    switch (activation) {
        case Activation::sigmoid: return logistic(x);
        case Activation::tanh: return std::tanh(x);
        case Activation::gelu: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
        case Activation::gelu_tanh:
            if (x > 1000) return x;
            return x * logistic(std::sqrt(8 / std::numbers::pi) * (x + 0.044715 * x * x * x));
        case Activation::swish: return x * logistic(x);
        case Activation::relu6: return x < 0 ? 0 : std::min(x, 6.0);
        case Activation::hardsigmoid: return exact(Activation::relu6, x + 3) / 6;
        case Activation::hardswish: return x * exact(Activation::hardsigmoid, x);
        default: return x;
    }
}

constexpr int kFloatBits = 23;  // of a significand, behind the point
constexpr int kBf16Bits = 7;

// In units of the spacing of numbers of so many bits around the correctly rounded result; infinite
// where one is NaN and the other is not, or zero has the wrong sign.
double ulps(float value, double expected, int bits = kFloatBits) {
    const auto rounded = static_cast<float>(expected);
    if (std::isnan(value) || std::isnan(rounded) || std::isinf(value) || std::isinf(rounded)) {
        const bool same = value == rounded || (std::isnan(value) && std::isnan(rounded));
        return same ? 0 : kInfinity;
    }
    if (value == 0 && std::signbit(value) != std::signbit(rounded)) return kInfinity;
    const std::uint32_t exponent = std::bit_cast<std::uint32_t>(rounded) >> 23 & 0xFF;
    const int last_place = static_cast<int>(std::max(exponent, 1U)) - 127 - bits;
    return std::abs(value - expected) * std::ldexp(1.0, -last_place);
}

constexpr std::int64_t kRow = 1000;  // whole vectors and a partial one

std::vector<Brgemm> kernels_for(Activation activation, std::int64_t rows) {
    return all_kernels(
        {.m = rows, .n = kRow, .k = 1, .beta = 1, .epilogue = {.activation = activation}});
}

std::vector<Brgemm> generated_kernels_for(Activation activation, std::int64_t rows) {
    std::vector<Brgemm> kernels = kernels_for(activation, rows);
    std::erase_if(kernels, [](const Brgemm& kernel) { return kernel.isa() == Isa::scalar; });
    return kernels;
}

std::vector<float> activated(const Brgemm& kernel, std::vector<float> values) {
    kernel({.c = values.data()});
    return values;
}

// Unlike ==, true for NaN and false for zeros of different signs.
bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
    return std::memcmp(left.data(), right.data(), left.size() * sizeof(float)) == 0;
}

struct Worst {
    double ulps = 0;
    float at = 0;
};

std::ostream& operator<<(std::ostream& out, const Worst& worst) {
    return out << worst.ulps << " ULP at " << worst.at;
}

Worst worst_of(const std::vector<float>& values, const std::vector<float>& results,
               const std::vector<double>& expected) {
    Worst worst;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double error = ulps(results[i], expected[i]);
        if (error > worst.ulps) worst = {error, values[i]};
    }
    return worst;
}

std::vector<double> exact(Activation activation, const std::vector<float>& values) {
    std::vector<double> results;
    results.reserve(values.size());
    for (const float value : values) results.push_back(exact(activation, value));
    return results;
}

// Random significands for every sign and exponent, subnormal ones too, then more of those for
// which some result is neither rounded to its limit nor trivial.
std::vector<float> values_of_every_exponent() {
    constexpr int kPerExponent = 1000;
    constexpr int kOnTheSlopes = 490'000;
    std::vector<float> values;
    std::mt19937 random(1);
    for (std::uint32_t exponent = 0; exponent < 0x1FF; ++exponent) {
        if ((exponent & 0xFF) == 0xFF) continue;
        for (int i = 0; i < kPerExponent; ++i) {
            const auto significand = static_cast<std::uint32_t>(random() >> 9);
            values.push_back(std::bit_cast<float>(exponent << 23 | significand));
        }
    }
    std::uniform_real_distribution<float> tails(-110, 20);
    std::normal_distribution<float> middle(0, 4);
    for (int i = 0; i < kOnTheSlopes; ++i) {
        values.push_back(i % 2 == 0 ? tails(random) : middle(random));
    }
    return values;
}

TEST_CASE("activations are within 4 ULP at every exponent") {
    const std::vector<float> values = values_of_every_exponent();
    REQUIRE(values.size() % kRow == 0);
    for (const Activation activation : kActivations) {
        const std::vector<double> expected = exact(activation, values);
        for (const Brgemm& kernel :
             kernels_for(activation, static_cast<std::int64_t>(values.size()) / kRow)) {
            const Worst worst = worst_of(values, activated(kernel, values), expected);
            INFO(kernel.name(), ": ", worst);
            CHECK(worst.ulps <= kMostUlps);
        }
    }
    if (!skipped_levels().empty()) MESSAGE("skipped, not usable here:", skipped_levels());
}

// Half a unit is the rounding's own.
TEST_CASE("activations stored as bfloat16 are correctly rounded but near ties") {
    constexpr double kMostUlpsOfBf16 = 0.501;
    constexpr std::int64_t kRows = 66;
    std::vector<std::uint16_t> values(kRows * kRow);
    for (std::uint32_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<std::uint16_t>(i);
    }
    for (const Activation activation : kActivations) {
        for (const Brgemm& kernel : all_kernels({.m = kRows,
                                                 .n = kRow,
                                                 .k = 1,
                                                 .a_type = DType::bf16,
                                                 .b_type = DType::bf16,
                                                 .c_type = DType::bf16,
                                                 .beta = 1,
                                                 .epilogue = {.activation = activation}})) {
            std::vector<std::uint16_t> results = values;
            kernel({.c = results.data()});
            Worst worst;
            for (std::size_t i = 0; i < values.size(); ++i) {
                const float x = bfloat16_value(values[i]);
                const double error =
                    ulps(bfloat16_value(results[i]), exact(activation, x), kBf16Bits);
                if (error > worst.ulps) worst = {error, x};
            }
            INFO(kernel.name(), ": ", worst);
            CHECK(worst.ulps <= kMostUlpsOfBf16);
        }
    }
}

TEST_CASE("activations at the ends of the line and around zero") {
    struct Point {
        float x;
        std::array<float, kActivations.size()> results;  // in the order of kActivations
    };
    const std::array points = {
        Point{0.0F, {0.5F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.5F, 0.0F}},
        Point{-0.0F, {0.5F, -0.0F, -0.0F, -0.0F, -0.0F, -0.0F, 0.5F, -0.0F}},
        Point{kInfinity, {1, 1, kInfinity, kInfinity, kInfinity, 6, 1, kInfinity}},
        Point{-kInfinity, {0.0F, -1, -0.0F, -0.0F, -0.0F, 0.0F, 0.0F, kNaN}},
        Point{kLargest, {1, 1, kLargest, kLargest, kLargest, 6, 1, kLargest}},
        Point{-kLargest, {0.0F, -1, -0.0F, -0.0F, -0.0F, 0.0F, 0.0F, -0.0F}},
        Point{4 * kSmallest,
              {0.5F, 4 * kSmallest, 2 * kSmallest, 2 * kSmallest, 2 * kSmallest, 4 * kSmallest,
               0.5F, 2 * kSmallest}},
        Point{-4 * kSmallest,
              {0.5F, -4 * kSmallest, -2 * kSmallest, -2 * kSmallest, -2 * kSmallest, 0.0F, 0.5F,
               -2 * kSmallest}},
        Point{kNaN, {kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN}},
        Point{-kNaN, {kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN, kNaN}},
    };
    for (std::size_t i = 0; i < kActivations.size(); ++i) {
        for (const Brgemm& kernel : kernels_for(kActivations[i], 1)) {
            for (const Point& point : points) {
                const std::vector<float> row(kRow, point.x);
                for (const float result : activated(kernel, row)) {
                    INFO(kernel.name(), " of ", point.x, " is ", result);
                    REQUIRE(ulps(result, point.results[i]) == 0);
                }
            }
        }
    }
}

TEST_CASE("AVX2 and AVX-512 give the same bits") {
    const std::vector<float> values = values_of_every_exponent();
    for (const Activation activation : kActivations) {
        std::vector<float> first;
        for (const Brgemm& kernel :
             generated_kernels_for(activation, static_cast<std::int64_t>(values.size()) / kRow)) {
            const std::vector<float> results = activated(kernel, values);
            if (first.empty()) first = results;
            INFO(kernel.name());
            CHECK(same_bits(results, first));
        }
    }
}

// A quarter of an hour; dlprim_tests --no-skip --test-case="every float" prints the numbers above.
TEST_CASE("every float" * doctest::skip()) {
    constexpr std::uint64_t kRows = 1024;
    std::vector<float> values(kRows * kRow);
    for (const Activation activation : kActivations) {
        const std::vector<Brgemm> kernels = generated_kernels_for(activation, kRows);
        if (kernels.empty()) return;
        Worst worst;
        for (std::uint64_t begin = 0; begin < std::uint64_t{1} << 32; begin += values.size()) {
            for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(begin + i));
            }
            const std::vector<float> results = activated(kernels.front(), values);
            const Worst here = worst_of(values, results, exact(activation, values));
            if (here.ulps > worst.ulps) worst = here;
            for (const Brgemm& other : kernels) {
                REQUIRE(same_bits(activated(other, values), results));
            }
        }
        MESSAGE(std::string(name_of(activation)), ": ", worst);
        CHECK(worst.ulps <= kMostUlps);
    }
}

}  // namespace
}  // namespace dlprim
