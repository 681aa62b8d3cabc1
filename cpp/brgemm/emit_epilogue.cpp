#include "brgemm/brgemm_emitter.h"
#include "brgemm/multiply.h"

namespace dlprim {
namespace {

constexpr std::uint8_t kNotLessOrEqual = 0x16;  // quiet; true for NaN

}  // namespace

void BrgemmEmitter::add_up_sets() {
    const int elements = tile_.rows * tile_.vectors;
    const bool floats = !is_integer(spec_.a_type);
    for (int set = 1; set < tile_.sets; ++set) {
        for (int i = 0; i < elements; ++i) {
            const int from = map_.accumulators + set * elements + i;
            floats ? add_floats(map_.accumulators + i, from)
                   : add_words(map_.accumulators + i, from);
        }
    }
}

// The zero point that the products really had.
void BrgemmEmitter::load_zero_point_a() {
    const Xbyak::Reg32 value = scratch_.cvt32();
    if (spec_.zero_point_a) {
        mov(value, arg(offsetof(BrgemmArgs, zero_point_a)));
    } else {
        xor_(value, value);
    }
    if (shifts_a()) add(value, shift_of_a(spec_, plan_.isa));
}

// sum (a - za)(b - zb) = sum a*b - za * sum b - zb * sum a + batch*k * za * zb, modulo 2^32.
void BrgemmEmitter::subtract_zero_points() {
    const bool b_sums = sums_b(spec_, plan_.isa);
    const bool a_sums = spec_.zero_point_b;
    const Xbyak::Reg32 value = scratch_.cvt32();
    const int factor = map_.b;
    if (b_sums) {
        load_zero_point_a();
        neg(value);
        broadcast_register(factor, value);
        for (int v = 0; v < tile_.vectors; ++v) multiply_words(map_.b_sums + v, factor);
    }
    if (b_sums && a_sums) {
        load_zero_point_a();
        imul(value, arg(offsetof(BrgemmArgs, zero_point_b)));
        imul(value, arg(offsetof(BrgemmArgs, batch)));
        imul(value, value, static_cast<int>(spec_.k));
        broadcast_register(factor, value);
        for (int v = 0; v < tile_.vectors; ++v) add_words(map_.b_sums + v, factor);
    }
    if (a_sums) {
        mov(value, arg(offsetof(BrgemmArgs, zero_point_b)));
        neg(value);
        broadcast_register(factor, value);
        for (int row = 0; row < tile_.rows; ++row) multiply_words(map_.a_sums + row, factor);
    }
    for_each_accumulator([&](int row, int v, int index) {
        if (b_sums) add_words(index, map_.b_sums + v);
        if (a_sums) add_words(index, map_.a_sums + row);
    });
}

void BrgemmEmitter::apply_epilogue() {
    if (is_integer(spec_.a_type) && spec_.c_type != DType::s32) {
        for_each_accumulator([&](int, int, int index) { words_to_floats(index); });
    }
    const Epilogue& epilogue = spec_.epilogue;
    if (epilogue.scale == Scale::tensor) apply_tensor_scale();
    if (epilogue.scale == Scale::column) {
        combine_columns(offsetof(BrgemmArgs, scale), &BrgemmEmitter::multiply_floats);
    }
    if (epilogue.bias && !starts_from_bias()) {
        combine_columns(offsetof(BrgemmArgs, bias), &BrgemmEmitter::add_floats);
    }
    if (epilogue.inner) apply_inner();
    if (epilogue.residual) apply_residual();
    if (epilogue.activation == Activation::relu) {
        apply_relu();
    } else if (epilogue.activation != Activation::none) {
        for_each_accumulator(
            [&](int, int, int index) { activate(epilogue.activation, index, map_.b); });
    }
}

void BrgemmEmitter::apply_tensor_scale() {
    mov(scratch_, arg(offsetof(BrgemmArgs, scale)));
    broadcast(map_.b, scratch_ + displacement(0));
    for (int v = 0; v < tile_.vectors; ++v) {
        for (int row = 0; row < tile_.rows; ++row) multiply_floats(accumulator(row, v), map_.b);
    }
}

// At those of this tile, of one word per column, which an argument points at.
void BrgemmEmitter::point_at_columns(std::size_t columns) {
    mov(scratch_, arg(columns));
    if (loops_columns_) add(scratch_, b_offset_);
}

// Copies between registers cost nothing, where additions behind the last product keep the first
// ones of the next tile waiting.
void BrgemmEmitter::load_columns(std::size_t columns) {
    point_at_columns(columns);
    for (int v = 0; v < tile_.vectors; ++v) {
        const int first = accumulator(0, v);
        load(first, scratch_ + displacement(v * vector_bytes()), is_tail(v));
        for (int row = 1; row < tile_.rows; ++row) copy(accumulator(row, v), first);
    }
}

void BrgemmEmitter::combine_columns(std::size_t columns, Combine combine) {
    point_at_columns(columns);
    for (int v = 0; v < tile_.vectors; ++v) {
        load(map_.b, scratch_ + displacement(v * vector_bytes()), is_tail(v));
        for (int row = 0; row < tile_.rows; ++row) (this->*combine)(accumulator(row, v), map_.b);
    }
}

// The residual lies as C does, so this tile is as far into it as c_ is into C.
void BrgemmEmitter::point_at_residual() {
    mov(scratch_, arg(offsetof(BrgemmArgs, residual)));
    add(scratch_, c_);
    sub(scratch_, arg(offsetof(BrgemmArgs, c)));
}

// NaN becomes the lower bound, which stands second.
void BrgemmEmitter::apply_inner() {
    const auto each = [&](std::size_t argument, auto step) {
        broadcast(map_.b, args_ + argument);
        for_each_accumulator([&](int, int, int index) { step(vector(index), vector(map_.b)); });
    };
    each(offsetof(BrgemmArgs, inner_lowest),
         [&](const Vector& x, const Vector& lowest) { vmaxps(x, x, lowest); });
    each(offsetof(BrgemmArgs, inner_highest), [&](const Vector& x, const Vector& highest) {
        vminps(x, x, highest);
        round_to_even(x.getIdx());
    });
    each(offsetof(BrgemmArgs, inner_scale),
         [&](const Vector& x, const Vector& scale) { vmulps(x, x, scale); });
    each(offsetof(BrgemmArgs, inner_shift),
         [&](const Vector& x, const Vector& shift) { vaddps(x, x, shift); });
}

void BrgemmEmitter::apply_residual() {
    point_at_residual();
    const int scale = map_.b + 1;
    const bool scaled = spec_.epilogue.residual_scale;
    if (scaled) broadcast(scale, args_ + offsetof(BrgemmArgs, residual_scale));
    for_each_accumulator([&](int row, int v, int index) {
        load_elements(map_.b, element_at(scratch_, row, v), spec_.c_type, is_tail(v));
        if (scaled) multiply_floats(map_.b, scale);
        add_floats(index, map_.b);
    });
}

void BrgemmEmitter::apply_relu() {
    const int zeros = map_.b;
    zero(zeros);
    for_each_accumulator([&](int row, int v, int index) {
        if (spec_.epilogue.relu_mask) store_relu_mask(row, v);
        relu(index, zeros);
    });
}

// One bit per lane; the bits beyond n are 0 and, from byte ceil(n / 8) on, not stored.
void BrgemmEmitter::store_relu_mask(int row, int v) {
    const int lanes = is_tail(v) ? tail_lanes() : plan_.lanes;
    const Vector x = vector(accumulator(row, v));
    const Vector zeros = vector(map_.b);
    const Xbyak::Reg32 bits = scratch_.cvt32();
    if (avx512()) {
        vcmpps(is_tail(v) ? k2 | tail_mask() : k2, x, zeros, kNotLessOrEqual);
        kmovw(bits, k2);
    } else {
        vcmpps(vector(map_.b + 1), x, zeros, kNotLessOrEqual);
        vmovmskps(bits, Xbyak::Ymm(map_.b + 1));
        if (is_tail(v)) and_(bits, (1 << lanes) - 1);
    }
    const auto to = mask_ + displacement(row * spec_.ldmask + v * plan_.lanes / 8);
    if (lanes > 8) {
        mov(word[to], bits.cvt16());
    } else {
        mov(byte[to], bits.cvt8());
    }
}

void BrgemmEmitter::store_range() {
    broadcast(map_.b, args_ + offsetof(BrgemmArgs, lowest));
    broadcast(map_.b + 1, args_ + offsetof(BrgemmArgs, highest));
    broadcast(map_.b + 2, args_ + offsetof(BrgemmArgs, zero_point_c));
    for_each_accumulator([&](int row, int v, int index) {
        store_between(c_at(row, v), index, spec_.c_type, is_tail(v), map_.b);
    });
}

void BrgemmEmitter::store_tile() {
    if (spec_.epilogue.range) return store_range();
    for_each_accumulator([&](int row, int v, int index) {
        store_elements(c_at(row, v), index, spec_.c_type, is_tail(v), map_.b);
    });
}

// The stores leave the core while the next tile is computed; as many at once as a tile has.
void BrgemmEmitter::zero_gaps() {
    zero(map_.b);
    const Gaps& gaps = spec_.gaps;
    for (int plane = 0; plane <= gaps.planes; ++plane) {
        if (plane == 1) mov(scratch_, c_);
        if (plane > 0) add(scratch_, arg(offsetof(BrgemmArgs, gap_stride)));
        const Reg& base = plane == 0 ? c_ : scratch_;
        for (int row = 0; row < tile_.rows; ++row) {
            for (int gap = plane == 0 ? 1 : 0; gap <= gaps.rows; ++gap) {
                const std::int64_t distance = gap * (c_row_ / (gaps.rows + 1));
                for (int v = 0; v < tile_.vectors; ++v) {
                    store_around_caches(element_at(base, row, v) + displacement(distance), map_.b,
                                        c_vector_);
                }
            }
        }
    }
}

Xbyak::RegExp BrgemmEmitter::element_at(const Reg& base, int row, int v) const {
    return base + displacement(row * c_row_ + v * c_vector_);
}

}  // namespace dlprim
