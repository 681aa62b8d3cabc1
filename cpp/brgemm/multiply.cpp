#include "brgemm/multiply.h"

#include <algorithm>
#include <array>

namespace dlprim {
namespace {

// Fewer multiplications than this take less time than to configure tiles.
constexpr double kLeastForTiles = 2048;
constexpr std::size_t kTypes = 6;  // of operands

bool pays_with_tiles(const BrgemmSpec& spec) {
    return static_cast<double>(spec.m) * static_cast<double>(spec.n) *
               static_cast<double>(spec.k) >=
           kLeastForTiles;
}

// Of bytes all kernels but those for operands of one kind take any: vpdpbusd's A or B becomes what
// it has to be (shift_of_a), or is widened.
bool takes(const Instruction& it, DType a_type, DType b_type) {
    if (!is_int8(a_type)) return it.a_type == a_type;
    if (it.multiply == Multiply::dot_same_int8) return it.a_type == a_type && it.b_type == b_type;
    return is_int8(it.a_type);
}

constexpr Multiply kFma = Multiply::fma, kTiles = Multiply::tiles;
constexpr DType kF32 = DType::f32, kBf16 = DType::bf16, kU8 = DType::u8, kS8 = DType::s8,
                kS16 = DType::s16, kS32 = DType::s32;

// clang-format off
constexpr std::array kInstructions = {
    Instruction{"scalar", "c(j) += a() * b(j) where j in 0:1",
                kFma, Isa::scalar, kF32, kF32, kF32, {6, 1, 1, 0, 0, true, true}},
    Instruction{"fma8", "c(j) += a() * b(j) where j in 0:8",
                kFma, Isa::avx2, kF32, kF32, kF32, {6, 1, 1, 0, 0, true, true}},
    Instruction{"fma16", "c(j) += a() * b(j) where j in 0:16",
                kFma, Isa::avx512, kF32, kF32, kF32, {6, 1, 1, 0, 0, true, true}},

    Instruction{"scalar bf16", "c(j) += a(i) * b(j,i) where j in 0:1, i in 0:2",
                Multiply::widen_bf16, Isa::scalar, kBf16, kBf16, kF32, {6, 2, 1, 1, 1, false, false}},
    Instruction{"widened bf16 x 8", "c(j) += a(i) * b(j,i) where j in 0:8, i in 0:2",
                Multiply::widen_bf16, Isa::avx2, kBf16, kBf16, kF32, {6, 2, 1, 1, 1, false, false}},
    Instruction{"widened bf16 x 16", "c(j) += a(i) * b(j,i) where j in 0:16, i in 0:2",
                Multiply::widen_bf16, Isa::avx512, kBf16, kBf16, kF32, {6, 2, 1, 1, 1, false, false}},
    Instruction{"vdpbf16ps", "c(j) += a(i) * b(j,i) where j in 0:16, i in 0:2",
                Multiply::dot_bf16, Isa::avx512_bf16, kBf16, kBf16, kF32, {7, 1, 1, 0, 0, true, true}},
    Instruction{"tdpbf16ps",
                "c(i,j) += a(i,k,u) * b(k,j,u) where i in 0:16, j in 0:16, k in 0:16, u in 0:2",
                kTiles, Isa::amx, kBf16, kBf16, kF32, {}, 1.0 / 16},

    Instruction{"scalar bytes", "c(j) += a(i) * b(j,i) where j in 0:1, i in 0:4",
                Multiply::widen_int8, Isa::scalar, kU8, kS8, kS32, {5, 2, 2, 1, 2, false, false}},
    Instruction{"widened bytes x 8", "c(j) += a(i) * b(j,i) where j in 0:8, i in 0:4",
                Multiply::widen_int8, Isa::avx2, kU8, kS8, kS32, {5, 2, 2, 1, 2, false, false}},
    Instruction{"vpdpbusd x 8", "c(j) += a(i) * b(j,i) where j in 0:8, i in 0:4",
                Multiply::dot_int8, Isa::avx2_vnni, kU8, kS8, kS32, {6, 1, 1, 0, 0, false, true}},
    Instruction{"vpdpbssd x 8", "c(j) += a(i) * b(j,i) where j in 0:8, i in 0:4",
                Multiply::dot_same_int8, Isa::avx2_vnni_int8, kS8, kS8, kS32,
                {6, 1, 1, 0, 0, false, true}},
    Instruction{"vpdpbuud x 8", "c(j) += a(i) * b(j,i) where j in 0:8, i in 0:4",
                Multiply::dot_same_int8, Isa::avx2_vnni_int8, kU8, kU8, kS32,
                {6, 1, 1, 0, 0, false, true}},
    Instruction{"widened bytes x 16", "c(j) += a(i) * b(j,i) where j in 0:16, i in 0:4",
                Multiply::widen_int8, Isa::avx512, kU8, kS8, kS32, {5, 2, 2, 1, 2, false, false}},
    Instruction{"vpdpbusd", "c(j) += a(i) * b(j,i) where j in 0:16, i in 0:4",
                Multiply::dot_int8, Isa::avx512_vnni, kU8, kS8, kS32, {5, 1, 1, 0, 0, false, true}},
    Instruction{"tdpbusd",
                "c(i,j) += a(i,k,u) * b(k,j,u) where i in 0:16, j in 0:16, k in 0:16, u in 0:4",
                kTiles, Isa::amx, kU8, kS8, kS32, {}, 1.0 / 16},

    Instruction{"scalar int16", "c(j) += a(i) * b(j,i) where j in 0:1, i in 0:2",
                Multiply::dot_int16, Isa::scalar, kS16, kS16, kS32, {2, 1, 2, 0, 0, false, true}},
    Instruction{"vpmaddwd x 8", "c(j) += a(i) * b(j,i) where j in 0:8, i in 0:2",
                Multiply::dot_int16, Isa::avx2, kS16, kS16, kS32, {2, 1, 2, 0, 0, false, true}},
    Instruction{"vpmaddwd", "c(j) += a(i) * b(j,i) where j in 0:16, i in 0:2",
                Multiply::dot_int16, Isa::avx512, kS16, kS16, kS32, {2, 1, 2, 0, 0, false, true}},

    // mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, on one tensor core of compute
    // capability 8.0.
    Instruction{"mma.m16n8k16",
                "c(i,j) += a(i,k) * b(j,k) where i in 0:16, j in 0:8, k in 0:16",
                kTiles, Isa::amx, kBf16, kBf16, kF32, {}, 1.0 / 8, 32, false},
};
// clang-format on

// A lower level is left where a higher one has an instruction of the type: those between avx2 and
// avx512, which that one does not imply, have none there.
const Instruction* chosen(DType a_type, DType b_type, Isa isa, bool with_tiles) {
    const Instruction* found = nullptr;
    for (const Instruction& it : kInstructions) {
        if (!it.has_kernels || it.isa > isa || !takes(it, a_type, b_type)) continue;
        if (it.multiply == Multiply::tiles && !with_tiles) continue;
        if (found == nullptr || it.isa > found->isa) found = &it;
    }
    return found;
}

}  // namespace

std::string_view name_of(Multiply multiply) {
    constexpr std::array<std::string_view, 8> names = {"fma",       "dot_bf16",   "widen_bf16",
                                                       "dot_int8",  "widen_int8", "dot_same_int8",
                                                       "dot_int16", "tiles"};
    return names.at(static_cast<std::size_t>(multiply));
}

std::span<const Instruction> instructions() { return kInstructions; }

// Plans of kernels ask it of every tile that they weigh.
const Instruction& instruction_of(const BrgemmSpec& spec, Isa isa) {
    using ByTypes = std::array<std::array<std::array<const Instruction*, 2>, kTypes>, kTypes>;
    static const auto table = [] {
        std::array<ByTypes, kIsaLevels> made = {};
        for (std::size_t level = 0; level < made.size(); ++level) {
            for (std::size_t a = 0; a < kTypes; ++a) {
                for (std::size_t b = 0; b < kTypes; ++b) {
                    for (const bool tiles : {false, true}) {
                        made[level][a][b][tiles ? 1 : 0] =
                            chosen(DType{static_cast<std::uint8_t>(a)},
                                   DType{static_cast<std::uint8_t>(b)},
                                   Isa{static_cast<std::uint8_t>(level)}, tiles);
                    }
                }
            }
        }
        return made;
    }();
    const auto number = [](auto name) { return static_cast<std::size_t>(name); };
    return *table[number(isa)][number(spec.a_type)][number(spec.b_type)]
                 [pays_with_tiles(spec) ? 1 : 0];
}

MultiplyCost cost_of(const BrgemmSpec& spec, Isa isa) {
    const Instruction& it = instruction_of(spec, isa);
    MultiplyCost cost = it.cost;
    if (it.multiply == Multiply::widen_int8) {
        // Signed bytes take a shift more than unsigned ones.
        const auto to_widen = [](DType dtype) { return dtype == DType::s8 ? 2 : 1; };
        cost.a_operations = to_widen(spec.a_type);
        cost.b_operations = to_widen(spec.b_type);
    }
    if (shift_of_a(spec, isa) != 0) ++cost.a_operations;
    return cost;
}

std::uint32_t valid_bits(DType dtype, int elements) {
    const std::int64_t bits = 8 * size_of(dtype) * elements;
    return bits >= 32 ? ~0U : (1U << bits) - 1;
}

int shift_of_a(const BrgemmSpec& spec, Isa isa) {
    constexpr int half = 128;
    const bool same = spec.a_type == spec.b_type;
    if (!same || multiply_of(spec, isa) != Multiply::dot_int8) return 0;
    return spec.a_type == DType::s8 ? half : -half;
}

bool sums_b(const BrgemmSpec& spec, Isa isa) {
    return spec.zero_point_a || shift_of_a(spec, isa) != 0;
}

}  // namespace dlprim
