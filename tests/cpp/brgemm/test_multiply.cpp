#include <stdexcept>

#include <doctest/doctest.h>

#include "brgemm/multiply.h"
#include "brgemm/registers.h"

namespace dlprim {
namespace {

BrgemmSpec typed(DType a, DType b, DType c) {
    BrgemmSpec spec;
    spec.m = spec.n = spec.k = 16;
    spec.a_type = a;
    spec.b_type = b;
    spec.c_type = c;
    return spec;
}

const BrgemmSpec kBf16 = typed(DType::bf16, DType::bf16, DType::f32);
const BrgemmSpec kU8 = typed(DType::u8, DType::s8, DType::s32);
const BrgemmSpec kS8 = typed(DType::s8, DType::s8, DType::s32);
const BrgemmSpec kU8ByU8 = typed(DType::u8, DType::u8, DType::s32);
const BrgemmSpec kS8ByU8 = typed(DType::s8, DType::u8, DType::s32);
const BrgemmSpec kS16 = typed(DType::s16, DType::s16, DType::s32);

TEST_CASE("a kernel uses no more of the ISA than its types need") {
    CHECK(kernel_isa(typed(DType::f32, DType::f32, DType::f32), Isa::amx) == Isa::avx512);
    CHECK(kernel_isa(kBf16, Isa::amx) == Isa::amx);
    CHECK(kernel_isa(kBf16, Isa::avx512_bf16) == Isa::avx512_bf16);
    CHECK(kernel_isa(kS8, Isa::amx) == Isa::amx);
    BrgemmSpec small = kBf16;
    small.m = small.n = small.k = 8;
    CHECK(kernel_isa(small, Isa::amx) == Isa::avx512_bf16);
    CHECK(kernel_isa(kBf16, Isa::avx512_vnni) == Isa::avx512);
    CHECK(kernel_isa(kU8, Isa::avx512_bf16) == Isa::avx512_vnni);
    CHECK(kernel_isa(kU8, Isa::avx2) == Isa::avx2);
    CHECK(kernel_isa(kU8, Isa::avx2_vnni) == Isa::avx2_vnni);
    CHECK(kernel_isa(kU8, Isa::avx2_vnni_int8) == Isa::avx2_vnni);
    CHECK(kernel_isa(kS8, Isa::avx2_vnni_int8) == Isa::avx2_vnni_int8);
    CHECK(kernel_isa(kU8ByU8, Isa::avx2_vnni_int8) == Isa::avx2_vnni_int8);
    CHECK(kernel_isa(kS8ByU8, Isa::avx2_vnni_int8) == Isa::avx2_vnni);
    CHECK(kernel_isa(kS8, Isa::avx512) == Isa::avx512);
    CHECK(kernel_isa(kBf16, Isa::avx2_vnni_int8) == Isa::avx2);
    CHECK(kernel_isa(typed(DType::f32, DType::f32, DType::f32), Isa::avx2_vnni) == Isa::avx2);
    CHECK(kernel_isa(kS16, Isa::amx) == Isa::avx512);
    CHECK(kernel_isa(kS16, Isa::avx2_vnni) == Isa::avx2);
    CHECK(kernel_isa(kS8, Isa::scalar) == Isa::scalar);
}

TEST_CASE("instructions follow from types and ISA") {
    CHECK(multiply_of(kBf16, Isa::amx) == Multiply::tiles);
    CHECK(multiply_of(kBf16, Isa::avx512_bf16) == Multiply::dot_bf16);
    CHECK(multiply_of(kBf16, Isa::avx512) == Multiply::widen_bf16);
    CHECK(multiply_of(kU8, Isa::avx512_vnni) == Multiply::dot_int8);
    CHECK(multiply_of(kU8, Isa::avx2) == Multiply::widen_int8);
    CHECK(multiply_of(kU8, Isa::avx512) == Multiply::widen_int8);
    CHECK(multiply_of(kS8, Isa::avx2_vnni) == Multiply::dot_int8);
    CHECK(multiply_of(kU8, Isa::avx2_vnni_int8) == Multiply::dot_int8);
    CHECK(multiply_of(kS8, Isa::avx2_vnni_int8) == Multiply::dot_same_int8);
    CHECK(multiply_of(kU8ByU8, Isa::avx2_vnni_int8) == Multiply::dot_same_int8);
    CHECK(multiply_of(kU8ByU8, Isa::avx512_vnni) == Multiply::dot_int8);
    CHECK(multiply_of(kS8ByU8, Isa::avx2_vnni_int8) == Multiply::dot_int8);
    CHECK(multiply_of(kS16, Isa::avx2) == Multiply::dot_int16);
    CHECK(multiply_of(kS16, Isa::avx512) == Multiply::dot_int16);
}

TEST_CASE("A is moved where it has the signs of B and the instruction takes both kinds") {
    for (const Isa isa : {Isa::avx2_vnni, Isa::avx512_vnni}) {
        CHECK(shift_of_a(kS8, isa) == 128);
        CHECK(shift_of_a(kU8ByU8, isa) == -128);
    }
    for (const BrgemmSpec& same : {kS8, kU8ByU8}) {
        CHECK(sums_b(same, Isa::avx512_vnni));
        CHECK(sums_b(same, Isa::avx2_vnni));
        for (const Isa isa : {Isa::avx2, Isa::avx2_vnni_int8, Isa::avx512, Isa::amx}) {
            CHECK(shift_of_a(same, isa) == 0);
            CHECK(!sums_b(same, isa));
        }
    }
    for (const BrgemmSpec& mixed : {kU8, kS8ByU8}) {
        CHECK(shift_of_a(mixed, Isa::avx512_vnni) == 0);
        CHECK(!sums_b(mixed, Isa::avx512_vnni));
    }
}

TEST_CASE("zero points take registers of their own, which the tile has to leave free") {
    const Tile tile{.rows = 4, .vectors = 3};
    BrgemmSpec zeroed = kU8;
    zeroed.zero_point_a = zeroed.zero_point_b = true;
    const RegisterMap plain = register_map(kU8, Isa::avx512_vnni, tile);
    const RegisterMap sums = register_map(zeroed, Isa::avx512_vnni, tile);
    CHECK(plain.b == 12);
    CHECK(sums.b_sums == 12);
    CHECK(sums.a_sums == 15);
    CHECK(sums.b == 19);
    CHECK(sums.total == plain.total + 3 + 4 + 1);
}

TEST_CASE("what ends sums beside products has registers that no tile takes") {
    BrgemmSpec spec = kU8;
    spec.c_type = DType::u8;
    spec.epilogue = {.scale = Scale::column, .range = true};
    CHECK(registers_beside_products(spec, Isa::avx512_vnni) == 4);
    CHECK(registers_beside_products(spec, Isa::avx512) == 0);
    CHECK(registers_beside_products(spec, Isa::avx2_vnni) == 0);
    spec.epilogue.residual = true;
    CHECK(registers_beside_products(spec, Isa::avx512_vnni) == 5);
    const Tile tile{.rows = 12, .vectors = 2};
    const RegisterMap map = register_map(spec, Isa::avx512_vnni, tile);
    CHECK(map.product == 27);
    CHECK(map.total == 32);
    BrgemmSpec deep = spec, partial = spec, zeroed = spec;
    deep.k = 1024;
    partial.k = 63;
    zeroed.zero_point_a = true;
    for (const BrgemmSpec& other : {deep, partial, zeroed}) {
        CHECK(registers_beside_products(other, Isa::avx512_vnni) == 0);
    }
}

TEST_CASE("types and epilogues that do not go together are refused by name") {
    CHECK_THROWS_WITH_AS(validated(typed(DType::f32, DType::bf16, DType::f32)),
                         doctest::Contains("float32 x bfloat16"), std::invalid_argument);
    CHECK_THROWS_WITH_AS(validated(typed(DType::s8, DType::s16, DType::s32)),
                         doctest::Contains("int8 x int16"), std::invalid_argument);
    CHECK_THROWS_WITH_AS(validated(typed(DType::bf16, DType::u8, DType::f32)),
                         doctest::Contains("or uint8 or int8 x uint8 or int8, or int16"),
                         std::invalid_argument);
    BrgemmSpec spec = kU8;
    spec.epilogue.bias = true;
    CHECK_THROWS_WITH_AS(validated(spec), doctest::Contains("int32"), std::invalid_argument);
    spec = typed(DType::u8, DType::s8, DType::f32);
    spec.beta = 1;
    CHECK_THROWS_WITH_AS(validated(spec), doctest::Contains("beta=1"), std::invalid_argument);
    spec = kBf16;
    spec.zero_point_a = true;
    CHECK_THROWS_WITH_AS(validated(spec), doctest::Contains("zero point"), std::invalid_argument);
    spec = kBf16;
    spec.epilogue.relu_mask = true;
    CHECK_THROWS_WITH_AS(validated(spec), doctest::Contains("relu_mask"), std::invalid_argument);
    spec.epilogue.activation = Activation::relu;
    spec.ldmask = 1;
    CHECK_THROWS_WITH_AS(validated(spec), doctest::Contains("ldmask"), std::invalid_argument);
}

}  // namespace
}  // namespace dlprim
