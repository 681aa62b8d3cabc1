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
    {0x6680, {0x0613f53eb8a2185f, 0x4aaec8f575dc0908, 0xfdad9e55e89b0da7, 0xb0d72d20a5bd29fb}},
    {0x7375, {0x4968456b58828e3b, 0xbcdb254988349786, 0x70f196181ae85277, 0xef641303befa983}},
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
