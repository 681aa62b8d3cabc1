// A new way of multiplying, or a new level, must leave the code of the others as it is, bit for
// bit: their results are promised to be the same and their speed was measured. Emission needs no
// CPU that has the level, so every machine checks them all.
#include <algorithm>
#include <array>
#include <cstdint>

#include <doctest/doctest.h>

#include "brgemm/emit.h"
#include "brgemm/plan.h"
#include "draw.h"
#include "drawn_spec.h"
#include "known_machines.h"

namespace dlprim {
namespace {

constexpr std::uint64_t kSpecs = 1000;
constexpr std::array kLevels = {Isa::avx2, Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16};

// The cores that plans tell apart; they take turns.
constexpr std::array<Machine, 3> kMachines = {
    Machine{},
    Machine{.shuffles_beat_broadcast_loads = true},
    testing::kZen3,
};

// FNV-1a of all bytes, and of their number from kernel to kernel.
std::uint64_t hash_of_code(Isa isa) {
    std::uint64_t hash = 0xcbf29ce484222325;
    const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
    for (std::uint64_t seed = 0; seed < kSpecs; ++seed) {
        testing::Draw draw(seed);
        const Machine& machine = kMachines[seed % kMachines.size()];
        const auto code = emit_brgemm(make_plan(testing::draw_spec(draw), isa, machine));
        mix(code.size());
        for (const std::uint8_t byte : code) mix(byte);
    }
    return hash;
}

struct Golden {
    int encoder;
    std::array<std::uint64_t, kLevels.size()> hashes;
};

constexpr std::array<Golden, 2> kGolden = {{
    {0x6680, {0x515133bee9b4f4a1, 0x609db577a0930611, 0xc529fcae011d7821, 0x9f9ea65c26299347}},
    {0x7375, {0x68ccdf0b6597ead9, 0x1f57c8d365872e0d, 0x1db22d78f6a415fd, 0x569ecb932a73cb37}},
}};

TEST_CASE("the code of a thousand kernels is what it was") {
    const auto* const golden = std::find_if(kGolden.begin(), kGolden.end(), [](const Golden& it) {
        return it.encoder == encoder_version();
    });
    if (golden == kGolden.end()) {
        MESSAGE("skipped: no bytes are recorded of Xbyak ", encoder_version());
        return;
    }
    for (std::size_t level = 0; level < kLevels.size(); ++level) {
        CAPTURE(name_of(kLevels[level]));
        CHECK(hash_of_code(kLevels[level]) == golden->hashes[level]);
    }
}

}  // namespace
}  // namespace dlprim
