#include <cmath>
#include <stdexcept>

#include <doctest/doctest.h>

#include "brgemm/peak.h"

namespace dlprim {
namespace {

constexpr double kSeconds = 1e-4;

TEST_CASE("the roofs of every usable level are positive and finite") {
    for (const Isa isa : {Isa::avx2, Isa::avx2_vnni, Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
        if (isa > usable_isa()) {
            MESSAGE("skipped, not usable here: ", std::string(name_of(isa)));
            continue;
        }
        for (const DType operands : {DType::f32, DType::bf16, DType::u8}) {
            const double operations = fma_peak(operands, isa, kSeconds);
            CHECK(operations > 0);
            CHECK(std::isfinite(operations));
        }
        const double bandwidth = read_bandwidth(isa, 1 << 14, kSeconds);
        CHECK(bandwidth > 0);
        CHECK(std::isfinite(bandwidth));
    }
}

TEST_CASE("a buffer smaller than one round of loads is rounded up") {
    if (usable_isa() == Isa::scalar) return;
    CHECK(read_bandwidth(Isa::avx2, 1, kSeconds) > 0);
}

TEST_CASE("levels without vectors or beyond the machine are refused") {
    CHECK_THROWS_AS(fma_peak(DType::f32, Isa::scalar, kSeconds), std::invalid_argument);
    if (usable_isa() < Isa::amx) {
        CHECK_THROWS_AS(fma_peak(DType::f32, Isa::amx, kSeconds), std::invalid_argument);
    }
    CHECK_THROWS_AS(read_bandwidth(Isa::scalar, 1 << 14, kSeconds), std::invalid_argument);
}

}  // namespace
}  // namespace dlprim
