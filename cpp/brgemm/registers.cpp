#include "brgemm/registers.h"

#include <algorithm>

#include "brgemm/multiply.h"
#include "jit/activation.h"

namespace dlprim {
namespace {

// In longer sums the end takes less than lower tiles cost.
constexpr std::int64_t kMostWordsBesideEnd = 64;

// Vector registers that the epilogue needs beside accumulators and sums, at its hungriest stage.
int epilogue_registers(const BrgemmSpec& spec, Isa isa) {
    const Epilogue& epilogue = spec.epilogue;
    int needed = 0;
    const bool sums = sums_b(spec, isa) || spec.zero_point_b;
    if (sums || epilogue.int_bias || epilogue.scale != Scale::none || epilogue.bias ||
        epilogue.residual)
        needed = 1;
    if (epilogue.residual_scale) needed = 2;
    if (epilogue.range) needed = 3;
    needed = std::max(needed, activation_registers(epilogue.activation));
    if (epilogue.relu_mask && isa < Isa::avx512) needed = std::max(needed, 2);
    if (spec.c_type != DType::f32 && spec.c_type != DType::s32) needed = std::max(needed, 2);
    // AVX2 masks memory through a register, also while the others are alive.
    const bool mask_register =
        isa < Isa::avx512 && spec.n % (vector_file(isa).bytes / kWordBytes) != 0;
    return needed + (mask_register ? 1 : 0);
}

}  // namespace

bool packs_bytes(const BrgemmSpec& spec) {
    return spec.epilogue.range && spec.epilogue.activation == Activation::none && spec.beta == 0 &&
           !spec.zero_point_a && !spec.zero_point_b;
}

int registers_beside_products(const BrgemmSpec& spec, Isa isa) {
    const bool whole = spec.k % elements_per_word(spec.a_type) == 0;
    if (isa < Isa::avx512 || multiply_of(spec, isa) != Multiply::dot_int8 || !packs_bytes(spec) ||
        sums_b(spec, isa) || !whole || spec.words() > kMostWordsBesideEnd) {
        return 0;
    }
    return spec.epilogue.residual ? 5 : 4;
}

RegisterNeeds::RegisterNeeds(const BrgemmSpec& spec, Isa isa)
    : multiply(multiply_of(spec, isa)),
      cost(cost_of(spec, isa)),
      avx512(isa >= Isa::avx512),
      trans_a(spec.trans_a),
      partial_word(spec.k % elements_per_word(spec.a_type) != 0),
      sums_b(dlprim::sums_b(spec, isa)),
      sums_a(spec.zero_point_b),
      spreads_b(is_int8(spec.a_type) && multiplies_bytes(isa) && !avx512),
      beside(registers_beside_products(spec, isa)),
      epilogue(epilogue_registers(spec, isa)) {}

RegisterMap register_map(const RegisterNeeds& needs, const Tile& tile) {
    const MultiplyCost& cost = needs.cost;
    const bool embedded = needs.avx512 && cost.embedded && tile.vectors == 1;
    const bool needs_a = !embedded || tile.quad_rows > 0 || needs.partial_word;
    const bool sums = needs.sums_b || needs.sums_a;
    RegisterMap map;
    map.b_sums = tile.accumulators();
    map.a_sums = map.b_sums + (needs.sums_b ? tile.vectors : 0);
    map.b = map.a_sums + (needs.sums_a ? tile.rows : 0);
    map.streams_b = !needs.avx512 && needs.multiply == Multiply::fma && tile.quad_rows == 0 &&
                    tile.vectors > tile.rows;
    map.spreads_b = needs.spreads_b;
    map.widens_at_once = needs.multiply == Multiply::widen_bf16 && tile.vectors == 1;
    map.a = map.b + (map.streams_b ? 1 : tile.vectors);
    map.embedded = embedded;
    map.ones = map.a + (map.streams_b ? tile.rows : needs_a ? 1 : 0);
    map.product = map.ones + (sums ? 1 : 0);
    const int halves = map.widens_at_once ? 2 : 0;
    map.quads = map.product + std::max(halves, cost.instructions > 1 ? 1 : 0);
    const int working =
        map.quads + (needs.trans_a ? (tile.quad_rows + kQuad - 1) / kQuad : tile.quad_rows);
    map.total =
        needs.beside > 0 ? working + needs.beside : std::max(working, map.b + needs.epilogue);
    return map;
}

}  // namespace dlprim
