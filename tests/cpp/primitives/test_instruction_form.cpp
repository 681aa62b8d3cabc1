#include <set>
#include <string>

#include <doctest/doctest.h>

#include "brgemm/amx/tile_map.h"
#include "lang/formulas.h"
#include "primitives/mapping/instruction_form.h"

namespace dlprim {
namespace {

bool is_tiles(const Instruction& it) { return it.multiply == Multiply::tiles; }

TEST_CASE("what an instruction computes is what its registers hold") {
    std::set<std::string> names;
    for (const Instruction& it : instructions()) {
        const std::string name(it.name);
        CAPTURE(name);
        CHECK(names.insert(name).second);
        if (!it.has_kernels) continue;
        const InstructionForm form(it);
        CHECK(form.word() == elements_per_word(it.a_type));
        if (is_tiles(it)) {
            CHECK(form.extent(LoopRole::row) == kMostTileRows);
            CHECK(form.extent(LoopRole::column) * kWord == kTileRowBytes);
            CHECK(form.extent(LoopRole::sum) * size_of(it.a_type) == kTileRowBytes);
            continue;
        }
        CHECK(form.extent(LoopRole::row) == 1);
        CHECK(form.extent(LoopRole::sum) == form.word());
        const int bytes = vector_file(it.isa).bytes;
        CHECK(form.extent(LoopRole::column) * kWord == (bytes == 0 ? kWord : bytes));
    }
}

TEST_CASE("loops are what moves along them, places where registers have them") {
    const InstructionForm& tile = instruction_named("tdpbf16ps");
    REQUIRE(tile.loops().size() == 4);
    CHECK(tile.loops()[0].role == LoopRole::row);
    CHECK(tile.loops()[1].role == LoopRole::column);
    CHECK(tile.loops()[2].role == LoopRole::sum);
    CHECK(tile.loops()[3].role == LoopRole::sum);
    CHECK(tile.products() == 16 * 16 * 32);
    REQUIRE(tile.places_b().size() == 3);
    CHECK(tile.places_b()[0].is_anywhere);
    CHECK(!tile.places_b()[1].is_anywhere);
    CHECK(tile.places_b()[1].stride == 2);
    CHECK(tile.places_b()[2].stride == 1);
    CHECK(tile.places_a()[0].is_anywhere);
    const InstructionForm& fma = instruction_named("fma16");
    CHECK(fma.places_a().empty());
    CHECK(!fma.has(LoopRole::sum));
    CHECK(fma.described() == "fma16: c(j) += a() * b(j) where j in 0:16");
    const InstructionForm& gpu = instruction_named("mma.m16n8k16");
    CHECK(gpu.products() == 16 * 8 * 16);
    CHECK(gpu.places_b()[0].is_anywhere);
}

TEST_CASE("what is multiplied in a cycle") {
    const Machine machine;
    const auto products = [&](const char* name) {
        const InstructionForm& form = instruction_named(name);
        return form.products() * form.starts_per_cycle(machine);
    };
    CHECK(products("fma8") == 16);
    CHECK(products("fma16") == 32);
    CHECK(products("widened bf16 x 16") == 32);
    CHECK(products("vdpbf16ps") == 64);
    CHECK(products("vpdpbusd") == 128);
    CHECK(products("tdpbf16ps") == 512);
    CHECK(products("tdpbusd") == 1024);
    CHECK(products("mma.m16n8k16") == 256);
}

TEST_CASE("large products take the best instruction of a level") {
    const auto name = [](DType type, Isa isa) {
        return std::string(instruction_for(type, type, isa).what().name);
    };
    CHECK(name(DType::f32, Isa::amx) == "fma16");
    CHECK(name(DType::f32, Isa::avx2_vnni) == "fma8");
    CHECK(name(DType::f32, Isa::scalar) == "scalar");
    CHECK(name(DType::bf16, Isa::amx) == "tdpbf16ps");
    CHECK(name(DType::bf16, Isa::avx512_bf16) == "vdpbf16ps");
    CHECK(name(DType::bf16, Isa::avx512) == "widened bf16 x 16");
    CHECK(name(DType::u8, Isa::avx2_vnni) == "vpdpbusd x 8");
    CHECK(name(DType::u8, Isa::avx2_vnni_int8) == "vpdpbuud x 8");
    CHECK(name(DType::s8, Isa::avx2_vnni_int8) == "vpdpbssd x 8");
    CHECK(name(DType::s8, Isa::amx) == "tdpbusd");
    for (const Instruction& it : instructions()) {
        for (int isa = 0; isa <= static_cast<int>(Isa::amx); ++isa) {
            const InstructionForm& form = instruction_for(it.a_type, it.b_type, Isa(isa));
            CHECK(form.what().has_kernels);
            CHECK(form.what().isa <= Isa(isa));
        }
    }
    CHECK(refusal_of([] {
              instruction_named("fma9");
          }).starts_with("instruction is 'fma9', expected one of scalar, fma8, fma16, "));
}

}  // namespace
}  // namespace dlprim
