#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "amx/emulate_amx.h"
#include "brgemm/brgemm.h"
#include "typed_problem.h"

namespace dlprim {
namespace {

using testing::emulates_amx;
using testing::Fence;
using testing::TypedProblem;
using testing::Values;

struct Types {
    DType a;
    DType b;
    DType c;
};

constexpr std::array kTypes = {
    Types{DType::f32, DType::f32, DType::f32},    Types{DType::bf16, DType::bf16, DType::f32},
    Types{DType::bf16, DType::bf16, DType::bf16}, Types{DType::u8, DType::s8, DType::s32},
    Types{DType::u8, DType::s8, DType::f32},      Types{DType::s8, DType::s8, DType::s32},
    Types{DType::s8, DType::s8, DType::bf16},     Types{DType::s8, DType::s8, DType::u8},
    Types{DType::u8, DType::s8, DType::s8},       Types{DType::s16, DType::s16, DType::s32},
    Types{DType::s16, DType::s16, DType::u8},     Types{DType::u8, DType::u8, DType::s32},
    Types{DType::u8, DType::u8, DType::u8},       Types{DType::s8, DType::u8, DType::s32},
    Types{DType::s8, DType::u8, DType::f32},      Types{DType::u8, DType::s8, DType::u8},
    Types{DType::s8, DType::u8, DType::s8}};

constexpr std::array kLevels = {Isa::scalar,         Isa::avx2,   Isa::avx2_vnni,
                                Isa::avx2_vnni_int8, Isa::avx512, Isa::avx512_vnni,
                                Isa::avx512_bf16,    Isa::amx};

BrgemmSpec spec_of(const Types& types, std::int64_t m, std::int64_t n, std::int64_t k) {
    BrgemmSpec spec;
    spec.m = m;
    spec.n = n;
    spec.k = k;
    spec.a_type = types.a;
    spec.b_type = types.b;
    spec.c_type = types.c;
    return spec;
}

// Where tiles are emulated, those of that level: the others are run without.
std::vector<Isa> levels() {
    std::vector<Isa> usable;
    for (const Isa isa : kLevels) {
        if (usable_isa(isa) == isa && (isa == Isa::amx || !emulates_amx())) usable.push_back(isa);
    }
    return usable;
}

// Every level, both fences; what is wrong, empty when nothing is.
std::string fault(const BrgemmSpec& spec, Values values, std::int64_t batch = 3) {
    for (const Fence fence : {Fence::before, Fence::after}) {
        const TypedProblem problem(spec, batch, fence, values, 7);
        for (const Isa isa : levels()) {
            const auto kernel = brgemm(spec, isa);
            const std::string mismatch = problem.mismatch(*kernel);
            if (!mismatch.empty()) return kernel->name() + ": " + mismatch;
        }
    }
    return "";
}

std::vector<float> eighths(std::int64_t count) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 13 - 6) / 8);
    return values;
}

TEST_CASE("every type at every remainder of k, m and n") {
    for (const Types& types : kTypes) {
        for (std::int64_t k = 1; k <= 9; ++k) {
            for (const auto& [m, n] : {std::pair{1, 1}, {5, 17}, {3, 64}, {29, 8}}) {
                for (const bool trans_a : {false, true}) {
                    BrgemmSpec spec = spec_of(types, m, n, k);
                    spec.trans_a = trans_a;
                    CHECK(fault(spec, Values::eighths) == "");
                }
            }
        }
    }
}

TEST_CASE("sums of full mantissas stay within the bound of float32") {
    for (const Types& types : kTypes) {
        CHECK(fault(spec_of(types, 13, 40, 301), Values::reals) == "");
    }
}

TEST_CASE("every part of the epilogue with every type of result") {
    for (const Types& types : kTypes) {
        if (types.c == DType::s32) continue;
        for (int i = 0; i < 7; ++i) {
            BrgemmSpec spec = spec_of(types, 7, 37, 6);
            spec.epilogue.activation = static_cast<Activation>(i);
            spec.epilogue.scale = static_cast<Scale>(i % 3);
            spec.epilogue.bias = i % 2 == 0;
            spec.epilogue.residual = i % 2 == 1;
            spec.epilogue.residual_scale = i % 4 == 1;
            spec.epilogue.int_bias = is_integer(types.a) && i % 3 != 1;
            spec.epilogue.range = size_of(types.c) == 1 && i % 2 == 0;
            spec.epilogue.relu_mask = spec.epilogue.activation == Activation::relu;
            CHECK(fault(spec, Values::eighths) == "");
        }
    }
}

TEST_CASE("exact sums begin with a bias of integers") {
    for (const Types& types : kTypes) {
        if (!is_integer(types.a)) continue;
        for (const auto& [m, n, k] : {std::array{9, 33, 21}, {30, 64, 128}, {1, 1, 1}}) {
            for (const bool zero_point : {false, true}) {
                BrgemmSpec spec = spec_of(types, m, n, k);
                spec.epilogue.int_bias = true;
                spec.zero_point_a = zero_point;
                CHECK(fault(spec, Values::eighths) == "");
            }
        }
    }
}

TEST_CASE("a sum is rounded on its own in front of a residual") {
    for (const Types& types : kTypes) {
        if (!is_integer(types.a) || types.c == DType::s32) continue;
        for (const auto& [m, n, k] :
             {std::array{9, 33, 21}, {37, 64, 128}, {19, 70, 4}, {1, 1, 1}}) {
            for (const bool zero_point : {false, true}) {
                BrgemmSpec spec = spec_of(types, m, n, k);
                spec.epilogue = {.scale = Scale::column,
                                 .bias = n != 64,
                                 .residual = true,
                                 .residual_scale = true,
                                 .inner = true,
                                 .range = size_of(types.c) == 1};
                spec.zero_point_a = zero_point;
                CHECK(fault(spec, Values::eighths) == "");
            }
        }
    }
}

TEST_CASE("results of 8 bits are packed whatever their rows are") {
    for (const Types& types : kTypes) {
        if (!is_int8(types.a) || size_of(types.c) != 1) continue;
        for (const int n : {1, 15, 16, 31, 32, 33, 47, 48, 61, 64, 80, 113}) {
            for (const int m : {1, 2, 5, 16, 31, 32, 67}) {
                BrgemmSpec spec = spec_of(types, m, n, 68);
                spec.epilogue = {.int_bias = m % 2 == 1,
                                 .scale = Scale::column,
                                 .bias = n % 2 == 0,
                                 .residual = m % 3 == 1,
                                 .range = true};
                CHECK(fault(spec, Values::eighths) == "");
            }
        }
    }
}

// Some rows end while the products of the next ones are added up, those of the last steps of the
// last pair of matrices.
TEST_CASE("sums end as bytes however long they are") {
    unsigned i = 0;
    for (const Types& types : kTypes) {
        if (!is_int8(types.a) || size_of(types.c) != 1) continue;
        for (const int k : {3, 4, 20, 64, 68, 136, 256, 260}) {
            for (const auto& [m, n] : {std::pair{1, 16}, {5, 24}, {29, 64}, {37, 48}, {67, 7}}) {
                BrgemmSpec spec = spec_of(types, m, n, k);
                const bool residual = i % 2 == 1;
                spec.epilogue = {.int_bias = i % 3 == 1,
                                 .scale = i % 5 == 0 ? Scale::tensor : Scale::column,
                                 .bias = i % 3 == 2,
                                 .residual = residual,
                                 .residual_scale = residual && i % 4 == 1,
                                 .inner = residual && i % 8 < 4,
                                 .range = true};
                spec.prefetch_a = i % 7 == 0;
                spec.prefetch_c = i % 2 == 1;
                spec.fetch_rows = i % 7 == 3 ? 2 * m : 0;
                for (const std::int64_t batch : {0, 1, 2}) {
                    CHECK(fault(spec, Values::eighths, batch) == "");
                }
                ++i;
            }
        }
    }
}

TEST_CASE("what is no number, or none that fits, becomes a bound of the bytes") {
    constexpr std::int64_t n = 23;
    constexpr std::array kScales = {std::numeric_limits<float>::quiet_NaN(), 1e38F, -1e38F, 3e7F,
                                    -3e7F};
    for (const std::int64_t k : {4, 300}) {
        const std::vector<std::uint8_t> a(static_cast<std::size_t>(9 * k), 100);
        const std::vector<std::int8_t> b(static_cast<std::size_t>(32 * k), 100);
        std::vector<float> scale(n);
        for (std::size_t j = 0; j < n; ++j) scale[j] = kScales[j % kScales.size()];
        for (const auto& [lowest, zero_point] : {std::pair{-20, -108}, {-128, 0}, {-28, 28}}) {
            for (const Isa isa : levels()) {
                BrgemmSpec spec = spec_of({DType::u8, DType::s8, DType::s8}, 9, n, k);
                spec.epilogue = {.scale = Scale::column, .range = true};
                std::vector<std::int8_t> c(9 * n);
                (*brgemm(spec, isa))({.a = a.data(),
                                      .b = b.data(),
                                      .c = c.data(),
                                      .batch = 1,
                                      .scale = scale.data(),
                                      .lowest = static_cast<float>(lowest),
                                      .highest = 90,
                                      .zero_point_c = zero_point});
                for (std::size_t i = 0; i < c.size(); ++i) {
                    const bool is_high = scale[i % n] > 0;
                    CHECK(c[i] == (is_high ? 90 : lowest) + zero_point);
                }
            }
        }
    }
}

TEST_CASE("zero points of int8") {
    for (const Types& types : kTypes) {
        if (!is_integer(types.a)) continue;
        for (const auto& [za, zb] : {std::pair{true, false}, {false, true}, {true, true}}) {
            BrgemmSpec spec = spec_of(types, 9, 33, 21);
            spec.zero_point_a = za;
            spec.zero_point_b = zb;
            CHECK(fault(spec, Values::eighths) == "");
        }
    }
}

TEST_CASE("rows of A may overlap") {
    for (const Types& types : kTypes) {
        for (const std::int64_t lda : {1, 2, 3, 8}) {
            for (const bool trans_a : {false, true}) {
                BrgemmSpec spec = spec_of(types, 17, 33, 21);
                spec.lda = lda;
                spec.sliding_a = true;
                spec.trans_a = trans_a;
                CHECK(fault(spec, Values::eighths) == "");
            }
        }
    }
}

// The same kernel, so the same bits as with a residual that is a copy of C.
TEST_CASE("a residual may be C itself") {
    for (const Isa isa : levels()) {
        for (const auto& [m, n, k] : {std::array{29, 70, 20}, {1, 3, 2}, {14, 64, 7}}) {
            BrgemmSpec spec = spec_of({DType::f32, DType::f32, DType::f32}, m, n, k);
            spec.ldc = n + 3;
            spec.epilogue.residual = true;
            const auto kernel = brgemm(spec, isa);
            const std::vector<float> a = eighths(m * k), b = eighths(k * n);
            const std::vector<float> before = eighths(m * spec.ldc);
            std::vector<float> apart = before, in_place = before;
            const auto run = [&](const float* residual, float* c) {
                (*kernel)({.a = a.data(), .b = b.data(), .c = c, .batch = 1, .residual = residual});
            };
            run(before.data(), apart.data());
            run(in_place.data(), in_place.data());
            CHECK(apart != before);
            CHECK(in_place == apart);
        }
    }
}

TEST_CASE("prefetches change nothing, wherever they lead") {
    for (const Types& types : kTypes) {
        for (unsigned i = 1; i < 32; ++i) {
            if ((i & 18) == 18) continue;
            for (const auto& [m, n, k] : {std::array{29, 40, 20}, {1, 3, 2}}) {
                BrgemmSpec spec = spec_of(types, m, n, k);
                spec.prefetch_a = (i & 1) != 0;
                spec.prefetch_b = (i & 2) != 0;
                spec.prefetch_c = (i & 4) != 0;
                spec.trans_a = (i & 8) != 0;
                spec.fetch_rows = (i & 16) != 0 ? 2 * m : 0;
                CHECK(fault(spec, Values::eighths) == "");
            }
        }
    }
}

TEST_CASE("prefetches beside a relu mask") {
    for (const Types& types : kTypes) {
        if (types.c == DType::s32) continue;
        BrgemmSpec spec = spec_of(types, 31, 37, 70);
        spec.epilogue = {.activation = Activation::relu, .relu_mask = true};
        spec.prefetch_a = spec.prefetch_c = true;
        CHECK(fault(spec, Values::eighths) == "");
    }
}

// Bytes of one value for each operand, which are what is farthest from zero of their type, and so
// many products of them that their sum is the last one that int32 holds, or the next one.
struct Extremes {
    DType a;
    DType b;
    int a_value;
    int b_value;
    std::int64_t products;
};

constexpr std::array kExtremes = {Extremes{DType::u8, DType::s8, 255, -128, 65793},
                                  Extremes{DType::s8, DType::u8, -128, 255, 65793},
                                  Extremes{DType::s8, DType::s8, -128, -128, 131071},
                                  Extremes{DType::u8, DType::u8, 255, 255, 33025}};

TEST_CASE("sums of bytes neither saturate nor lose bits at the extremes") {
    constexpr std::int64_t m = 16;
    constexpr std::int64_t n = 16;
    for (const Extremes& it : kExtremes) {
        for (const std::int64_t k : {it.products, it.products + 1}) {
            const auto bytes = [&](std::int64_t rows, int value) {
                return std::vector<std::uint8_t>(static_cast<std::size_t>(rows * (k + 3)),
                                                 static_cast<std::uint8_t>(value));
            };
            const std::vector<std::uint8_t> a = bytes(m, it.a_value), b = bytes(n, it.b_value);
            const std::int64_t sum = k * it.a_value * it.b_value;
            CHECK((sum == static_cast<std::int32_t>(sum)) == (k == it.products));
            for (const Isa isa : levels()) {
                std::vector<std::int32_t> c(m * n);
                const auto kernel = brgemm(spec_of({it.a, it.b, DType::s32}, m, n, k), isa);
                (*kernel)({.a = a.data(), .b = b.data(), .c = c.data(), .batch = 1});
                const auto wrapped = static_cast<std::int32_t>(sum);
                CHECK(c == std::vector<std::int32_t>(m * n, wrapped));
            }
        }
    }
}

}  // namespace
}  // namespace dlprim
