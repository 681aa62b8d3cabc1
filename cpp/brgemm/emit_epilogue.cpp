#include <algorithm>

#include "brgemm/brgemm_emitter.h"
#include "brgemm/multiply.h"

namespace dlprim {
namespace {

constexpr std::uint8_t kNotLessOrEqual = 0x16;  // quiet; true for NaN

constexpr int kPacked = 4;  // registers whose words become the bytes of one

// So many products of a sum take as long as ending it, and so many sums hide their latency.
constexpr std::int64_t kStepsBesideEnd = 16;
constexpr int kSumsAtOnce = 8;

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
        for_each_accumulator([&](int, int, int index) {
            activate(epilogue.activation, index, map_.b, 1, spec_.c_type);
        });
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
void BrgemmEmitter::point_at_columns(std::size_t columns, const Reg& pointer) {
    mov(pointer, arg(columns));
    if (loops_columns_) add(pointer, b_offset_);
}

// Copies between registers cost nothing, where additions behind the last product keep the first
// ones of the next tile waiting.
void BrgemmEmitter::load_columns(std::size_t columns) {
    point_at_columns(columns, scratch_);
    for (int v = 0; v < tile_.vectors; ++v) {
        const int first = accumulator(0, v);
        load(first, scratch_ + displacement(v * vector_bytes()), is_tail(v));
        for (int row = 1; row < tile_.rows; ++row) copy(accumulator(row, v), first);
    }
}

void BrgemmEmitter::combine_columns(std::size_t columns, Combine combine) {
    point_at_columns(columns, scratch_);
    for (int v = 0; v < tile_.vectors; ++v) {
        load(map_.b, scratch_ + displacement(v * vector_bytes()), is_tail(v));
        for (int row = 0; row < tile_.rows; ++row) (this->*combine)(accumulator(row, v), map_.b);
    }
}

// The residual lies as C does, so this tile is as far into it as c_ is into C.
void BrgemmEmitter::point_at_residual(const Reg& pointer) {
    mov(pointer, arg(offsetof(BrgemmArgs, residual)));
    add(pointer, c_);
    sub(pointer, arg(offsetof(BrgemmArgs, c)));
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
    point_at_residual(scratch_);
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

void BrgemmEmitter::load_packing(const BytePacking& packing) {
    broadcast(packing.lowest, args_ + offsetof(BrgemmArgs, lowest));
    start_packing(args_ + offsetof(BrgemmArgs, zero_point_c), packing);
}

// Bounds above come first, as which NaN stays what it is.
void BrgemmEmitter::store_range() {
    broadcast(map_.b, args_ + offsetof(BrgemmArgs, highest));
    for_each_accumulator([&](int, int, int index) {
        vminps(vector(index), vector(map_.b), vector(index));
        vcvtps2dq(vector(index), vector(index));
    });
    const BytePacking packing = {.lowest = map_.b, .zero_point = map_.b + 1, .order = map_.b + 2};
    load_packing(packing);
    for (const PackedRows& rows : packed_rows(0, tile_.rows)) pack_and_store(rows, packing);
}

std::vector<BrgemmEmitter::PackedRows> BrgemmEmitter::packed_rows(int first, int end) const {
    std::vector<PackedRows> all;
    const int whole = tile_.vectors - (masked_ ? 1 : 0);
    const auto cut = [&](int vector, int vectors, bool partial) {
        const int at_once = kPacked / vectors;
        for (int row = first; row < end; row += at_once) {
            all.push_back({row, std::min(at_once, end - row), vector, vectors, partial});
        }
    };
    if (whole > 0) cut(0, whole, false);
    if (masked_) cut(whole, 1, true);
    return all;
}

void BrgemmEmitter::pack_and_store(const PackedRows& it, const BytePacking& packing) {
    std::vector<int> words;
    for (int i = 0; i < it.rows * it.vectors; ++i) {
        words.push_back(accumulator(it.row + i / it.vectors, it.vector + i % it.vectors));
    }
    pack_bytes(words, spec_.c_type, packing);
    for (int i = 0; i < it.rows; ++i) {
        const Xbyak::RegExp to = c_at(it.row + i, it.vector);
        it.partial ? store_packed_tail(to, words, i)
                   : store_packed(to, words, i * it.vectors, it.vectors);
    }
}

// From words to integers below the upper bound. What belongs to columns and the residual are where
// point_at_ends() points.
void BrgemmEmitter::end_sum(int row, int v, int index, const ByteEnds& ends) {
    const Epilogue& epilogue = spec_.epilogue;
    const Vector x = vector(index);
    const Vector masked = is_tail(v) ? x | tail_mask() | T_z : x;
    const auto distance = displacement(v * vector_bytes());
    if (epilogue.scale != Scale::none) {
        const bool by_column = epilogue.scale == Scale::column;
        if (ends.scales != kInMemory) {
            vmulps(x, x, vector(ends.scales + (by_column ? v : 0)));
        } else if (by_column) {
            vmulps(masked, x, ptr[k_ + distance]);
        } else {
            vmulps(x, x, ptr_b[k_]);
        }
    }
    if (epilogue.bias) vaddps(masked, x, ptr[a_next_ + distance]);
    if (epilogue.inner) {
        vmaxps(x, x, ptr_b[args_ + offsetof(BrgemmArgs, inner_lowest)]);
        vminps(x, x, ptr_b[args_ + offsetof(BrgemmArgs, inner_highest)]);
        round_to_even(index);
        vmulps(x, x, ptr_b[args_ + offsetof(BrgemmArgs, inner_scale)]);
        vaddps(x, x, ptr_b[args_ + offsetof(BrgemmArgs, inner_shift)]);
    }
    if (epilogue.residual) {
        const Vector residual = vector(ends.residual);
        load_elements(ends.residual, element_at(b_next_, row, v), spec_.c_type, is_tail(v));
        if (epilogue.residual_scale && ends.residual_scale != kInMemory) {
            vmulps(residual, residual, vector(ends.residual_scale));
        } else if (epilogue.residual_scale) {
            vmulps(residual, residual, ptr_b[args_ + offsetof(BrgemmArgs, residual_scale)]);
        }
        add_floats(index, ends.residual);
    }
    vminps(x, vector(ends.highest), x);  // NaN as the second one stays
    vcvtps2dq(x, x);
}

// Tiles whose sums are one set, and which read A word by word.
bool BrgemmEmitter::ends_beside_products() const {
    return registers_beside_products(spec_, plan_.isa) > 0 && tile_.sets == 1 &&
           tile_.quad_rows == 0;
}

std::int64_t BrgemmEmitter::steps_beside_end() const {
    return std::min<std::int64_t>(spec_.words(), kStepsBesideEnd);
}

// For all tiles of a call.
void BrgemmEmitter::load_kept_ends() {
    broadcast(kVectorEnds.highest, args_ + offsetof(BrgemmArgs, highest));
    load_packing(kVectorEnds.packing);
}

// Where no more matrices follow.
void BrgemmEmitter::point_at_ends() {
    const Epilogue& epilogue = spec_.epilogue;
    if (epilogue.scale == Scale::tensor) mov(k_, arg(offsetof(BrgemmArgs, scale)));
    if (epilogue.scale == Scale::column) point_at_columns(offsetof(BrgemmArgs, scale), k_);
    if (epilogue.bias) point_at_columns(offsetof(BrgemmArgs, bias), a_next_);
    if (epilogue.residual) point_at_residual(b_next_);
}

std::vector<BrgemmEmitter::Stage> BrgemmEmitter::end_of_rows(int first, int end) {
    std::vector<Stage> stages;
    for (const PackedRows& rows : packed_rows(first, end)) {
        for (int i = 0; i < rows.rows * rows.vectors; ++i) {
            const int row = rows.row + i / rows.vectors;
            const int v = rows.vector + i % rows.vectors;
            stages.emplace_back([this, row, v] {
                words_to_floats(accumulator(row, v));
                end_sum(row, v, accumulator(row, v), kVectorEnds);
            });
        }
        stages.emplace_back([this, rows] { pack_and_store(rows, kVectorEnds.packing); });
    }
    return stages;
}

// The last steps of a tile, some rows after the others, whose sums end while the products of the
// next ones are added up: they use other parts of a core.
void BrgemmEmitter::end_beside_products() {
    const int steps = static_cast<int>(steps_beside_end());
    const int elements = static_cast<int>(elements_per_word(spec_.a_type));
    const int at_once = (kSumsAtOnce + tile_.vectors - 1) / tile_.vectors;
    point_at_ends();
    std::vector<Stage> waiting;
    for (int first = 0; first < tile_.rows; first += at_once) {
        const int end = std::min(first + at_once, tile_.rows);
        std::size_t done = 0;
        for (int s = 0; s < steps; ++s) {
            const Step step = {s, elements, steps - s, first, end};
            if (first == 0) prefetch(step, steps);
            one_step(step, 0);
            const auto due =
                waiting.size() * static_cast<std::size_t>(s + 1) / static_cast<std::size_t>(steps);
            for (; done < due; ++done) waiting[done]();
        }
        waiting = end_of_rows(first, end);
    }
    for (const Stage& stage : waiting) stage();
    fetched_rows_ = 0;
    if (spec_.fetch_rows > 0) add(b_ahead_, immediate(share_of(steps)));
}

void BrgemmEmitter::end_alone() {
    point_at_ends();
    for (const Stage& stage : end_of_rows(0, tile_.rows)) stage();
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
