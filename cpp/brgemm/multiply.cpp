#include "brgemm/multiply.h"

#include <algorithm>
#include <array>

namespace dlprim {
namespace {

// Fewer multiplications than this take less time than to configure tiles.
constexpr std::int64_t kLeastForTiles = 2048;

bool pays_with_tiles(const BrgemmSpec& spec) {
    const bool tiles = spec.a_type == DType::bf16 || is_int8(spec.a_type);
    return tiles && spec.m * spec.n * spec.k >= kLeastForTiles;
}

}  // namespace

std::string_view name_of(Multiply multiply) {
    constexpr std::array<std::string_view, 8> names = {"fma",       "dot_bf16",   "widen_bf16",
                                                       "dot_int8",  "widen_int8", "dot_same_int8",
                                                       "dot_int16", "tiles"};
    return names.at(static_cast<std::size_t>(multiply));
}

Isa kernel_isa(const BrgemmSpec& spec, Isa isa) {
    if (isa >= Isa::amx && pays_with_tiles(spec)) return Isa::amx;
    if (spec.a_type == DType::bf16 && isa >= Isa::avx512_bf16) return Isa::avx512_bf16;
    if (is_int8(spec.a_type) && isa >= Isa::avx512_vnni) return Isa::avx512_vnni;
    if (isa >= Isa::avx512) return Isa::avx512;
    const bool same = spec.a_type == spec.b_type;
    const Isa most_for_bytes = same ? Isa::avx2_vnni_int8 : Isa::avx2_vnni;
    return std::min(isa, is_int8(spec.a_type) ? most_for_bytes : Isa::avx2);
}

Multiply multiply_of(const BrgemmSpec& spec, Isa isa) {
    if (kernel_isa(spec, isa) == Isa::amx) return Multiply::tiles;
    if (spec.a_type == DType::bf16) {
        return isa >= Isa::avx512_bf16 ? Multiply::dot_bf16 : Multiply::widen_bf16;
    }
    if (is_int8(spec.a_type)) {
        const bool same = spec.a_type == spec.b_type;
        if (same && isa == Isa::avx2_vnni_int8) return Multiply::dot_same_int8;
        return multiplies_bytes(isa) ? Multiply::dot_int8 : Multiply::widen_int8;
    }
    return spec.a_type == DType::s16 ? Multiply::dot_int16 : Multiply::fma;
}

MultiplyCost cost_of(const BrgemmSpec& spec, Isa isa) {
    const auto to_widen = [](DType dtype) { return dtype == DType::s8 ? 2 : 1; };
    switch (multiply_of(spec, isa)) {
        case Multiply::fma: return {6, 1, 1, 0, 0, true, true};
        case Multiply::dot_bf16: return {7, 1, 1, 0, 0, true, true};
        case Multiply::widen_bf16: return {6, 2, 1, 1, 1, false, false};
        case Multiply::dot_int8:
            return {isa < Isa::avx512 ? 6 : 5, 1, 1, shift_of_a(spec, isa) != 0, 0, false, true};
        case Multiply::widen_int8:
            return {5, 2, 2, to_widen(spec.a_type), to_widen(spec.b_type), false, false};
        case Multiply::dot_same_int8: return {6, 1, 1, 0, 0, false, true};
        case Multiply::dot_int16: return {2, 1, 2, 0, 0, false, true};
        case Multiply::tiles: break;
    }
    return {};
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

bool sums_a(const BrgemmSpec& spec) { return spec.zero_point_b; }

}  // namespace dlprim
