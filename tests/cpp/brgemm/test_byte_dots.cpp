// That kernels multiply bytes with the instructions of their signs. AVX-VNNI-INT8 is rare, so its
// kernels are tested without it: their instructions against an assembler's, and all around these by
// running vpdpbusd in their place, which is the same where the bytes that it takes for the other
// kind are from 0 to 127. Kernels for AMX are looked at, as the emulation runs them.
#include <array>
#include <cstdint>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "amx/amx_instruction.h"
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
constexpr std::size_t kLongest = 15;   // bytes of an instruction
constexpr std::uint8_t kMixed = 1;     // VEX.pp of vpdpbusd
constexpr std::uint8_t kSigned = 3;    // of vpdpbssd
constexpr std::uint8_t kUnsigned = 0;  // of vpdpbuud

struct Types {
    DType a;
    DType b;
};

BrgemmSpec spec_of(const Types& types, std::int64_t m, std::int64_t n, std::int64_t k) {
    return validated(
        {.m = m, .n = n, .k = k, .a_type = types.a, .b_type = types.b, .c_type = DType::s32});
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

Bytes last_dot_product(const Types& types, Isa isa, std::int64_t m) {
    const Bytes code = emit_brgemm(make_plan(spec_of(types, m, 8, 4), isa, {}));
    const auto at = code.begin() + static_cast<std::ptrdiff_t>(dot_products(code).back());
    return {at, at + 5};
}

// As binutils 2.40 assembles them.
TEST_CASE("dot products of bytes have the encodings of an assembler") {
    constexpr DType u8 = DType::u8, s8 = DType::s8;
    // vpdpbusd ymm0, ymm2, ymm1 and ymm12, ymm14, ymm13
    CHECK(last_dot_product({u8, s8}, Isa::avx2_vnni, 1) == Bytes{0xc4, 0xe2, 0x6d, 0x50, 0xc1});
    CHECK(last_dot_product({u8, s8}, Isa::avx2_vnni, 13) == Bytes{0xc4, 0x42, 0x0d, 0x50, 0xe5});
    // The unsigned B first: vpdpbusd ymm0, ymm1, ymm2 and ymm12, ymm13, ymm14
    CHECK(last_dot_product({s8, u8}, Isa::avx2_vnni, 1) == Bytes{0xc4, 0xe2, 0x75, 0x50, 0xc2});
    CHECK(last_dot_product({s8, u8}, Isa::avx2_vnni, 13) == Bytes{0xc4, 0x42, 0x15, 0x50, 0xe6});
    constexpr Isa both = Isa::avx2_vnni_int8;
    // vpdpbssd ymm0, ymm2, ymm1 and ymm12, ymm14, ymm13; then vpdpbuud
    CHECK(last_dot_product({s8, s8}, both, 1) == Bytes{0xc4, 0xe2, 0x6f, 0x50, 0xc1});
    CHECK(last_dot_product({s8, s8}, both, 13) == Bytes{0xc4, 0x42, 0x0f, 0x50, 0xe5});
    CHECK(last_dot_product({u8, u8}, both, 1) == Bytes{0xc4, 0xe2, 0x6c, 0x50, 0xc1});
    CHECK(last_dot_product({u8, u8}, both, 13) == Bytes{0xc4, 0x42, 0x0c, 0x50, 0xe5});
}

TEST_CASE("kernels for AMX multiply with the instruction of their signs") {
    using testing::AmxOperation;
    constexpr DType u8 = DType::u8, s8 = DType::s8;
    const std::vector<std::pair<Types, AmxOperation>> all = {{{u8, u8}, AmxOperation::tdpbuud},
                                                             {{u8, s8}, AmxOperation::tdpbusd},
                                                             {{s8, u8}, AmxOperation::tdpbsud},
                                                             {{s8, s8}, AmxOperation::tdpbssd}};
    for (const auto& [types, expected] : all) {
        BrgemmSpec spec = spec_of(types, 40, 40, 100);
        spec.zero_point_a = spec.zero_point_b = true;
        const Bytes code = emit_brgemm(make_plan(spec, Isa::amx, {}));
        std::set<AmxOperation> found;
        for (std::size_t i = 0; i + kLongest <= code.size(); ++i) {
            const auto instruction = testing::decode_amx(&code[i]);
            if (instruction && instruction->operation >= AmxOperation::tdpbf16ps) {
                found.insert(instruction->operation);
            }
        }
        CHECK(found == std::set<AmxOperation>{expected});
    }
}

// With vpdpbusd in the place of what multiplies bytes of one kind.
Code runnable(Bytes code, std::uint8_t kind) {
    for (const std::size_t at : dot_products(code)) {
        REQUIRE((code[at + 2] & kPrefixBits) == kind);
        code[at + 2] = static_cast<std::uint8_t>(code[at + 2] - kind + kMixed);
    }
    return Code(code);
}

Bytes drawn(testing::Draw& draw, std::int64_t bytes, std::int64_t most) {
    Bytes values;
    for (std::int64_t i = 0; i < bytes; ++i) {
        values.push_back(static_cast<std::uint8_t>(draw.from(0, most)));
    }
    return values;
}

BrgemmSpec draw_product(testing::Draw& draw, DType both) {
    BrgemmSpec spec = spec_of({both, both}, draw.extent(), draw.extent(), draw.extent());
    spec.trans_a = draw.once_in(3);
    spec.lda = spec.a_columns();
    spec.zero_point_a = draw.once_in(3);
    spec.zero_point_b = draw.once_in(3);
    return validated(spec);
}

TEST_CASE("kernels for bytes of one kind are right around their instruction") {
    if (usable_isa(Isa::avx2_vnni) != Isa::avx2_vnni) {
        MESSAGE("skipped: there is no AVX-VNNI here");
        return;
    }
    for (std::uint64_t seed = 0; seed < 600; ++seed) {
        testing::Draw draw(seed);
        const bool is_signed = seed % 2 == 0;
        const BrgemmSpec spec = draw_product(draw, is_signed ? DType::s8 : DType::u8);
        const Machine machine{.shuffles_beat_broadcast_loads = draw.once_in(2)};
        const Code code = runnable(emit_brgemm(make_plan(spec, Isa::avx2_vnni_int8, machine)),
                                   is_signed ? kSigned : kUnsigned);
        const Bytes a = drawn(draw, span_a(spec), is_signed ? 127 : 255);
        const Bytes b = drawn(draw, span_b(spec), is_signed ? 255 : 127);
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
