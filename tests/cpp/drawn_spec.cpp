#include "drawn_spec.h"

#include <array>

namespace dlprim::testing {
namespace {

void draw_types(Draw& draw, BrgemmSpec& spec) {
    constexpr std::array int8_results = {DType::s32, DType::f32, DType::bf16, DType::u8, DType::s8};
    switch (draw.from(0, 3)) {
        case 0: break;
        case 1:
            spec.a_type = spec.b_type = DType::bf16;
            spec.c_type = draw.once_in(2) ? DType::bf16 : DType::f32;
            break;
        default:
            spec.a_type = draw.once_in(2) ? DType::u8 : DType::s8;
            spec.b_type = DType::s8;
            spec.c_type = draw.one_of(int8_results);
            spec.zero_point_a = draw.once_in(3);
            spec.zero_point_b = draw.once_in(3);
    }
}

void draw_epilogue(Draw& draw, BrgemmSpec& spec) {
    if (spec.c_type == DType::s32) return;
    Epilogue& epilogue = spec.epilogue;
    epilogue.scale = static_cast<Scale>(draw.from(0, 2));
    epilogue.bias = draw.once_in(2);
    epilogue.residual = draw.once_in(3);
    epilogue.activation = draw.one_of(
        std::array{Activation::none, Activation::relu, Activation::sigmoid, Activation::tanh,
                   Activation::gelu, Activation::gelu_tanh, Activation::swish});
    epilogue.relu_mask = epilogue.activation == Activation::relu && draw.once_in(2);
    if (epilogue.relu_mask && draw.once_in(2)) spec.ldmask = (spec.n + 7) / 8 + draw.from(0, 3);
}

void draw_prefetches(Draw& draw, BrgemmSpec& spec) {
    if (!draw.once_in(3)) return;
    spec.prefetch_a = draw.once_in(2);
    spec.prefetch_b = draw.once_in(2) && !spec.epilogue.relu_mask;
    spec.prefetch_c = draw.once_in(2);
}

// Rows of C and gaps are aligned to the cache line.
void draw_gaps(Draw& draw, BrgemmSpec& spec) {
    constexpr std::int64_t columns = 16;
    const std::int64_t line = 64 / size_of(spec.c_type);
    if (size_of(spec.c_type) == 1 || !draw.once_in(6)) return;
    spec.n = draw.from(1, 8) * columns;
    spec.ldb = draw.once_in(2) ? spec.n + draw.from(0, 20) : 0;
    spec.gaps = {static_cast<int>(draw.from(0, 3)), static_cast<int>(draw.from(0, 3))};
    const std::int64_t row = ((spec.n + line - 1) / line + draw.from(0, 1)) * line;
    spec.ldc = row * (spec.gaps.rows + 1);
}

void draw_more_of_epilogue(Draw& draw, BrgemmSpec& spec) {
    Epilogue& epilogue = spec.epilogue;
    epilogue.residual_scale = epilogue.residual && size_of(spec.c_type) == 1 && draw.once_in(2);
    epilogue.range = size_of(spec.c_type) == 1 && draw.once_in(2);
    epilogue.inner = epilogue.residual && is_int8(spec.a_type) && draw.once_in(2);
    if (epilogue.activation == Activation::gelu && draw.once_in(2)) {
        epilogue.activation = draw.one_of(
            std::array{Activation::relu6, Activation::hardsigmoid, Activation::hardswish});
    }
}

}  // namespace

BrgemmSpec draw_spec(Draw& draw) {
    BrgemmSpec spec;
    spec.m = draw.extent();
    spec.n = draw.extent();
    spec.k = draw.extent();
    draw_types(draw, spec);
    spec.trans_a = draw.once_in(3);
    if (draw.once_in(2)) spec.lda = spec.a_columns() + draw.from(0, 20);
    spec.sliding_a = draw.once_in(4);
    if (spec.sliding_a) spec.lda = draw.from(1, spec.a_columns());
    if (draw.once_in(2)) spec.ldb = spec.n + draw.from(0, 20);
    if (draw.once_in(2)) spec.ldc = spec.n + draw.from(0, 20);
    const bool adds = !is_int8(spec.a_type) || spec.c_type == DType::s32;
    spec.beta = adds && draw.once_in(2) ? 1 : 0;
    spec.addressing = static_cast<Addressing>(draw.from(0, 2));
    draw_gaps(draw, spec);
    draw_epilogue(draw, spec);
    draw_prefetches(draw, spec);
    return validated(spec);
}

BrgemmSpec draw_any_spec(Draw& draw) {
    BrgemmSpec spec = draw_spec(draw);
    Epilogue& epilogue = spec.epilogue;
    if (spec.a_type == DType::s8 && draw.once_in(3)) spec.a_type = spec.b_type = DType::s16;
    epilogue.int_bias = is_integer(spec.a_type) && spec.beta == 0 && draw.once_in(2);
    const bool is_free = !epilogue.relu_mask && !spec.prefetch_b;
    spec.fetch_rows = is_free && draw.once_in(6) ? draw.from(1, 300) : 0;
    if (spec.c_type != DType::s32) draw_more_of_epilogue(draw, spec);
    if (is_int8(spec.a_type) && draw.once_in(2)) spec.b_type = DType::u8;
    return validated(spec);
}

}  // namespace dlprim::testing
