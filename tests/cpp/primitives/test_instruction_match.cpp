#include <string>

#include <doctest/doctest.h>

#include "bound_product.h"
#include "primitives/mapping/instruction_match.h"

namespace dlprim {
namespace {

using testing::product_of;

InstructionMatch best(const StridedProduct& product, const char* name) {
    return matches_of(product, instruction_named(name), Machine()).front();
}

TEST_CASE("a matrix product fills tiles, and only the pairs of one operand are packed") {
    const auto product =
        product_of("y(n,k) +=! x(n,c) * w(k,c)", {{64, 96}, {128, 96}}, {}, DType::bf16);
    const InstructionMatch match = best(product, "tdpbf16ps");
    CHECK(match.instructions == 4 * 8 * 3);
    CHECK(match.used == 1);
    CHECK(match.cycles == 4 * 8 * 3 * 16);
    CHECK(!match.packs_a);
    CHECK(match.packs_b);
    CHECK(!match.packs_c);
    // A GPU's instruction reads columns of B, which w has as rows.
    const InstructionMatch gpu = best(product, "mma.m16n8k16");
    CHECK(gpu.instructions == 4 * 16 * 6);
    CHECK(!gpu.packs_a);
    CHECK(!gpu.packs_b);
}

TEST_CASE("a multiply-add takes columns alone, in place where they are neighbours") {
    const auto product =
        product_of("y(n,k) +=! x(n,c) * w(c,k)", {{5, 7}, {7, 40}}, {}, DType::f32);
    const InstructionMatch match = best(product, "fma16");
    CHECK(match.instructions == 5 * 7 * 3);
    CHECK(match.used == doctest::Approx(40.0 / 48));
    CHECK(match.rows == 0);
    CHECK(match.sums == 0);
    CHECK(!match.packs_b);
    CHECK(!match.packs_c);
}

TEST_CASE("indices of a class are one where packing makes them so, which is an image as columns") {
    const auto product = product_of("y(n,k,p,q) +=! x(n,c,p+r,q+s) * w(k,c,r,s)",
                                    {{2, 16, 10, 10}, {32, 16, 3, 3}}, {}, DType::bf16);
    const InstructionMatch match = best(product, "tdpbf16ps");
    // 144 sums, 5 times 32; 128 pixels; 32 filters.
    CHECK(match.instructions == 8 * 2 * 5);
    CHECK(match.packs_a);
    CHECK(match.packs_b);
    // Without packing a tile is the channels of a row of eight pixels.
    const auto all = matches_of(product, instruction_named("tdpbf16ps"), Machine());
    CHECK(all.size() == 2 * 4 * 4);
    for (const InstructionMatch& it : all) {
        CHECK(it.used <= 1);
        CHECK(it.cycles >= match.cycles);
    }
}

TEST_CASE("products apart stay outside, and text says all of it") {
    const auto product =
        product_of("y(g,n,k) +=! x(g,n,c) * w(g,c,k)", {{3, 16, 32}, {3, 32, 8}}, {}, DType::bf16);
    const InstructionMatch gpu = best(product, "mma.m16n8k16");
    CHECK(gpu.instructions == 3 * 2);
    const std::string text = described_matches(product, instruction_named("mma.m16n8k16"), false);
    CHECK(text.find("6 instructions, 100 % of whose products are needed, 48 cycles: i: n, j: k, "
                    "k: c; A in place, B packed, C in place") != std::string::npos);
}

}  // namespace
}  // namespace dlprim
