// AVX-VNNI-INT8 is rare, so its kernels are tested without it: their instructions against an
// assembler's, and all around these by running vpdpbusd in their place, which is the same for bytes
// of A from 0 to 127.
#include <array>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "brgemm/emit.h"
#include "brgemm/plan.h"
#include "brgemm/reference.h"
#include "draw.h"
#include "jit/code.h"

namespace dlprim {
namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint8_t kOpcode = 0x50;  // of both, in map 0F38
constexpr std::uint8_t kPrefixBits = 3;
constexpr std::uint8_t kUnsigned = 1;  // VEX.pp of vpdpbusd
constexpr std::uint8_t kSigned = 3;    // of vpdpbssd

BrgemmSpec spec_of(DType a, std::int64_t m, std::int64_t n, std::int64_t k) {
    return validated(
        {.m = m, .n = n, .k = k, .a_type = a, .b_type = DType::s8, .c_type = DType::s32});
}

// Where the dot products of three registers begin.
std::vector<std::size_t> dot_products(const Bytes& code) {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i + 5 <= code.size(); ++i) {
        const bool map_0f38 = (code[i + 1] & 0x1f) == 2;
        const bool ymm = (code[i + 2] & 0x84) == 4;  // W is 0
        if (code[i] == 0xc4 && map_0f38 && ymm && code[i + 3] == kOpcode && code[i + 4] >= 0xc0) {
            found.push_back(i);
        }
    }
    return found;
}

Bytes last_dot_product(DType a, Isa isa, std::int64_t m, std::int64_t n) {
    const Bytes code = emit_brgemm(make_plan(spec_of(a, m, n, 4), isa, {}));
    const auto at = code.begin() + static_cast<std::ptrdiff_t>(dot_products(code).back());
    return {at, at + 5};
}

// As binutils 2.40 assembles them.
TEST_CASE("dot products of bytes have the encodings of an assembler") {
    // vpdpbusd ymm0, ymm2, ymm1 and ymm12, ymm14, ymm13; then vpdpbssd
    CHECK(last_dot_product(DType::u8, Isa::avx2_vnni, 1, 8) == Bytes{0xc4, 0xe2, 0x6d, 0x50, 0xc1});
    CHECK(last_dot_product(DType::u8, Isa::avx2_vnni, 13, 8) ==
          Bytes{0xc4, 0x42, 0x0d, 0x50, 0xe5});
    CHECK(last_dot_product(DType::s8, Isa::avx2_vnni_int8, 1, 8) ==
          Bytes{0xc4, 0xe2, 0x6f, 0x50, 0xc1});
    CHECK(last_dot_product(DType::s8, Isa::avx2_vnni_int8, 13, 8) ==
          Bytes{0xc4, 0x42, 0x0f, 0x50, 0xe5});
}

// With vpdpbusd in the place of vpdpbssd.
Code runnable(Bytes code) {
    for (const std::size_t at : dot_products(code)) {
        REQUIRE((code[at + 2] & kPrefixBits) == kSigned);
        code[at + 2] = static_cast<std::uint8_t>(code[at + 2] - kSigned + kUnsigned);
    }
    return Code(code);
}

std::vector<std::int8_t> drawn(testing::Draw& draw, std::int64_t bytes, std::int64_t low) {
    std::vector<std::int8_t> values;
    for (std::int64_t i = 0; i < bytes; ++i) {
        values.push_back(static_cast<std::int8_t>(draw.from(low, 127)));
    }
    return values;
}

BrgemmSpec draw_product(testing::Draw& draw) {
    BrgemmSpec spec = spec_of(DType::s8, draw.extent(), draw.extent(), draw.extent());
    spec.trans_a = draw.once_in(3);
    spec.lda = spec.a_columns();
    spec.zero_point_a = draw.once_in(3);
    spec.zero_point_b = draw.once_in(3);
    return validated(spec);
}

TEST_CASE("kernels for signed bytes are right around their instruction") {
    if (usable_isa(Isa::avx2_vnni) != Isa::avx2_vnni) {
        MESSAGE("skipped: there is no AVX-VNNI here");
        return;
    }
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        testing::Draw draw(seed);
        const BrgemmSpec spec = draw_product(draw);
        const Machine machine{.shuffles_beat_broadcast_loads = draw.once_in(2)};
        const Code code = runnable(emit_brgemm(make_plan(spec, Isa::avx2_vnni_int8, machine)));
        const auto a = drawn(draw, span_a(spec), 0);
        const auto b = drawn(draw, span_b(spec), -128);
        std::vector<std::int32_t> expected(static_cast<std::size_t>(spec.m * spec.ldc));
        std::vector<std::int32_t> actual = expected;
        BrgemmArgs args{.a = a.data(),
                        .b = b.data(),
                        .c = expected.data(),
                        .batch = 1,
                        .zero_point_a = -3,
                        .zero_point_b = 5};
        reference_brgemm(spec, args);
        args.c = actual.data();
        code.entry<void(const BrgemmArgs*)>()(&args);
        CHECK_MESSAGE(actual == expected, to_string(spec));
    }
}

}  // namespace
}  // namespace dlprim
