#include <algorithm>
#include <utility>

#include "brgemm/brgemm_emitter.h"
#include "brgemm/multiply.h"

namespace dlprim {
namespace {

constexpr std::uint32_t kSignBits = 0x80808080;  // flipped: see shift_of_a()

}  // namespace

// All words of k but the last `following`: whole ones first, in a loop where they are many, then a
// partial one, which nothing follows.
void BrgemmEmitter::k_loop(int unroll, std::int64_t following) {
    const std::int64_t group = elements_per_word(spec_.a_type) * depth_;
    const std::int64_t whole = spec_.k / group - following;
    const int partial = static_cast<int>(spec_.k % group);
    const int run = static_cast<int>(std::min<std::int64_t>(unroll, whole));
    const std::int64_t iterations = run > 0 ? whole / run : following > 0 ? 0 : 1;
    const int rest = static_cast<int>(whole - iterations * run);
    const std::int64_t fetching = iterations + (following > 0 ? 1 : 0);
    fetched_rows_ =
        fetches_residual() ? static_cast<int>((tile_.rows + fetching - 1) / fetching) : 0;
    if (iterations > 0) {
        const auto turn = [&] {
            k_steps(run);
            if (spec_.fetch_rows > 0) add(b_ahead_, immediate(share_of(run)));
            if (uses_tiles() && run > 0) keep_awake(iterations > 1 ? k_ : batch_, run);
            const bool goes_on = iterations > 1 || rest > 0 || partial > 0 || following > 0;
            if (run == 0 || !goes_on) return;
            step_along_k(run);
            if (fetched_rows_ > 0) add(scratch_, immediate(fetched_rows_ * c_row_));
        };
        repeat(k_.cvt32(), plan_.reads_turns ? kReadAtCall : iterations, turn, turns_);
    }
    const int fetched_rows = std::exchange(fetched_rows_, 0);
    k_steps(rest);
    if (following > 0) {
        if (rest > 0) step_along_k(rest);
        if (rest > 0 && spec_.fetch_rows > 0) add(b_ahead_, immediate(share_of(rest)));
        fetched_rows_ = fetched_rows;
    }
    if (partial == 0) return;
    if (uses_tiles()) return tile_step(rest, true);
    for (int pass = 0; pass < std::min(passes_, partial); ++pass) {
        one_step({rest, partial, 1, 0, tile_.rows}, pass);
    }
}

void BrgemmEmitter::step_along_k(int steps) {
    add(a_, immediate(steps * a_step_));
    add(b_, immediate(steps * b_step_));
    if (spec_.prefetch_a) add(a_ahead_, immediate(steps * a_step_));
    if (fetched_lines_ > 0) add(b_ahead_, immediate(steps * b_step_));
}

void BrgemmEmitter::k_steps(int steps) {
    const int elements = static_cast<int>(elements_per_word(spec_.a_type));
    for (int step = 0; step < steps; ++step) {
        if (uses_tiles()) {
            tile_step(step, false);
            continue;
        }
        const Step all = {step, elements, steps - step, 0, tile_.rows};
        prefetch(all, steps);
        if (map_.widens_at_once) {
            both_halves(step);
            continue;
        }
        for (int pass = 0; pass < passes_; ++pass) one_step(all, pass);
    }
}

// Outer product of one column of words of A and one row of words of B, or of the part of the words
// that this pass widens.
void BrgemmEmitter::one_step(const Step& step, int pass) {
    if (map_.streams_b) return stream_b(step);
    const int quad_rows = load_quads(step);
    const bool partial = step.elements < elements_per_word(spec_.a_type);
    for (int v = 0; v < tile_.vectors && !map_.spreads_b; ++v) load_b(v, step, pass);
    for (int v = 0; v < tile_.vectors && !map_.spreads_b; ++v) sum_b(v);
    for (int row = step.first_row; row < step.end_row; ++row) {
        if (row >= quad_rows && map_.embedded && !partial) {
            multiply_embedded(row, step);
            continue;
        }
        if (row < quad_rows) {
            const int quad = spec_.trans_a ? row / kQuad : row;
            spread_quad(map_.a, map_.quads + quad, (spec_.trans_a ? row : step.index) % kQuad);
        } else {
            load_a(row, step, pass);
        }
        for (int v = 0; v < tile_.vectors; ++v) {
            if (map_.spreads_b && row == step.first_row) load_b(v, step, pass);
            multiply(accumulator(row, v, step.index), map_.a, map_.b + v);
            if (map_.spreads_b && row == step.first_row) sum_b(v);
        }
        if (spec_.zero_point_b) multiply(map_.a_sums + row, map_.a, map_.ones);
    }
}

// The same of float32, vector by vector.
void BrgemmEmitter::stream_b(const Step& step) {
    for (int row = 0; row < tile_.rows; ++row) broadcast(map_.a + row, a_at(row, step.index));
    for (int v = 0; v < tile_.vectors; ++v) {
        load(map_.b, b_ + displacement(step.index * b_step_ + v * vector_bytes()), is_tail(v));
        for (int row = 0; row < tile_.rows; ++row) {
            multiply(accumulator(row, v, step.index), map_.a + row, map_.b);
        }
    }
}

// Each line ahead of this tile once, spread over the steps that use a line of this one: along a
// row of A, or one of each row of a transposed A, whose tiles share its lines; and the tile's share
// of the lines of B.
void BrgemmEmitter::prefetch(const Step& step, int run) {
    if (spec_.prefetch_a && spec_.trans_a) {
        prefetcht1(ptr[a_ahead_ + displacement(step.index * a_step_)]);
    } else if (spec_.prefetch_a) {
        const int period = std::min(kLineBytes / kWordBytes, run);
        for (int row = step.index % period; row < tile_.rows; row += period) {
            prefetcht1(ptr[a_ahead_ + displacement(row * a_row_ + step.index * a_step_)]);
        }
    }
    fetch_share(step.index);
    for (int line = 0; line < fetched_lines_; ++line) {
        prefetcht1(ptr[b_ahead_ + displacement(step.index * b_step_ + line * kLineBytes)]);
    }
    const auto in_row = static_cast<int>((tile_.vectors * c_vector_ + kLineBytes - 1) / kLineBytes);
    const int lines = fetched_rows_ * in_row;
    for (int i = lines * step.index / run; i < lines * (step.index + 1) / run; ++i) {
        prefetcht0(
            ptr[element_at(scratch_, i / in_row, 0) + displacement(i % in_row * kLineBytes)]);
    }
}

// Bytes that so many steps of this tile fetch where all rows of C share that. They are no whole
// lines: a line that two iterations touch is fetched once and found by the other.
std::int64_t BrgemmEmitter::share_of(int steps) const {
    if (spec_.fetch_rows == 0) return 0;
    const std::int64_t bytes =
        std::int64_t{steps} * depth_ * tile_.rows * tile_.vectors * vector_bytes();
    return (bytes + spec_.fetch_rows - 1) / spec_.fetch_rows;
}

// The lines that begin in the share of a step of an iteration.
void BrgemmEmitter::fetch_share(int step) {
    const auto lines = [&](int steps) { return (share_of(steps) + kLineBytes - 1) / kLineBytes; };
    for (std::int64_t line = lines(step); line < lines(step + 1); ++line) {
        prefetcht1(ptr[b_ahead_ + displacement(line * kLineBytes)]);
    }
}

// A step of bfloat16 pairs whose halves are widened side by side.
void BrgemmEmitter::both_halves(int step) {
    const int upper_b = map_.product;
    const int upper_a = map_.product + 1;
    load(upper_b, b_ + displacement(step * b_step_), is_tail(0));
    widen_halves(map_.b, upper_b);
    for (int row = 0; row < tile_.rows; ++row) {
        broadcast(upper_a, a_at(row, step));
        widen_halves(map_.a, upper_a);
        fma(accumulator(row, 0, step), map_.a, map_.b);
        fma(accumulator(row, 0, step), upper_a, upper_b);
    }
}

// From pairs in `upper`: the first of each to `lower`, the second stays, both as float32.
void BrgemmEmitter::widen_halves(int lower, int upper) {
    vpslld(vector(lower), vector(upper), 16);
    and_constant(upper, 0xffff0000);
}

// Brings the quads that this step needs and returns how many rows have their word in one. A quad
// lies along k, or along the rows where A is transposed.
int BrgemmEmitter::load_quads(const Step& step) {
    if (step.elements < elements_per_word(spec_.a_type)) return 0;
    const auto bring = [&](int quad, int row) {
        broadcast_quad(map_.quads + quad, a_at(row, step.index));
        if (shifts_a()) xor_constant(map_.quads + quad, kSignBits);
    };
    if (spec_.trans_a) {
        const int quads = tile_.quad_rows / kQuad;
        for (int quad = 0; quad < quads; ++quad) bring(quad, quad * kQuad);
        return quads * kQuad;
    }
    const int within = step.index % kQuad;
    if (within + step.following < kQuad) return 0;
    for (int row = 0; within == 0 && row < tile_.quad_rows; ++row) bring(row, row);
    return tile_.quad_rows;
}

void BrgemmEmitter::load_b(int v, const Step& step, int pass) {
    const bool partial = step.elements < elements_per_word(spec_.b_type);
    const int b = map_.b + v;
    load(b, b_ + displacement(step.index * b_step_ + v * vector_bytes()), is_tail(v));
    // What stands behind the last element of k may be anything, NaN included.
    if (partial) and_constant(b, valid_bits(spec_.b_type, step.elements));
    widen(b, spec_.b_type, pass);
}

void BrgemmEmitter::sum_b(int v) {
    if (sums_b(spec_, plan_.isa)) multiply(map_.b_sums + v, map_.ones, map_.b + v);
}

// One word of A in every lane of map_.a, as the multiplication wants it. Of the last one of a
// packed A only what is in k: the rest may be anything.
void BrgemmEmitter::load_a(int row, const Step& step, int pass) {
    const bool partial = step.elements < elements_per_word(spec_.a_type);
    if (partial && !spec_.trans_a) {
        load_partial_word(row, step);
    } else {
        broadcast(map_.a, a_at(row, step.index));
        if (shifts_a()) xor_constant(map_.a, kSignBits);
        if (partial) and_constant(map_.a, valid_bits(spec_.a_type, step.elements));
    }
    widen(map_.a, spec_.a_type, pass);
}

// The last elements of a row of A that is not packed, with zeros behind them: nothing may be
// touched there.
void BrgemmEmitter::load_partial_word(int row, const Step& step) {
    const Xbyak::RegExp from = a_at(row, step.index);
    const Xbyak::Reg32 assembled = scratch_.cvt32();
    const std::int64_t bytes = step.elements * size_of(spec_.a_type);
    movzx(assembled, bytes == 1 ? byte[from] : word[from]);
    if (bytes == 3) {
        movzx(k_.cvt32(), byte[from + 2]);
        shl(k_.cvt32(), 16);
        or_(assembled, k_.cvt32());
    }
    if (shifts_a()) xor_(assembled, kSignBits & valid_bits(spec_.a_type, step.elements));
    broadcast_register(map_.a, assembled);
}

// The part of each word that this pass multiplies.
void BrgemmEmitter::widen(int index, DType dtype, int pass) {
    if (plan_.multiply == Multiply::widen_bf16) {
        if (pass == 0) shift_words_left(index, 16);
        if (pass == 1) and_constant(index, 0xffff0000);
    }
    if (plan_.multiply != Multiply::widen_int8) return;
    if (dtype == DType::s8) {
        if (pass == 0) vpsllw(vector(index), vector(index), 8);
        vpsraw(vector(index), vector(index), 8);
    } else {
        if (pass == 0) and_constant(index, 0x00ff00ff);
        if (pass == 1) vpsrlw(vector(index), vector(index), 8);
    }
}

void BrgemmEmitter::multiply_embedded(int row, const Step& step) {
    const Vector to = vector(accumulator(row, 0, step.index));
    const Vector b = vector(map_.b);
    const auto a = ptr_b[a_at(row, step.index)];
    plan_.multiply == Multiply::dot_bf16 ? vdpbf16ps(to, b, a) : vfmadd231ps(to, b, a);
}

void BrgemmEmitter::multiply(int to, int a, int b) {
    const bool unsigned_b = spec_.b_type == DType::u8;
    const Vector sum = vector(to), x = vector(a), y = vector(b);
    switch (plan_.multiply) {
        case Multiply::fma:
        case Multiply::widen_bf16: fma(to, a, b); break;
        case Multiply::dot_bf16: vdpbf16ps(sum, y, x); break;
        case Multiply::dot_int8: unsigned_b ? dot_int8(to, b, a) : dot_int8(to, a, b); break;
        case Multiply::dot_same_int8: unsigned_b ? vpdpbuud(sum, x, y) : vpdpbssd(sum, x, y); break;
        case Multiply::widen_int8:
        case Multiply::dot_int16:
            vpmaddwd(vector(map_.product), x, y);
            add_words(to, map_.product);
            break;
        case Multiply::tiles: break;  // amx/emit_amx.cpp
    }
}

int BrgemmEmitter::accumulator(int row, int vector, int step) const {
    const int set = step % tile_.sets;
    return map_.accumulators + (set * tile_.rows + row) * tile_.vectors + vector;
}

Xbyak::RegExp BrgemmEmitter::a_at(int row, int step) const {
    return a_ + displacement(row * a_row_ + step * a_step_);
}

}  // namespace dlprim
