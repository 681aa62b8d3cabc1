#include <algorithm>
#include <bit>

#include "brgemm/amx/tile_frame.h"
#include "brgemm/brgemm_emitter.h"

namespace dlprim {
namespace {

using Xbyak::Tmm;

constexpr int kMostVectorsAtOnce = 16;  // of a block in its epilogue
constexpr int kMostRowsAtOnce = 8;
constexpr std::uint32_t kBytesOfOne = 0x01010101;
constexpr unsigned kStepsAwake = 16;

constexpr int kPageBytes = 4096;

}  // namespace

Xbyak::Address BrgemmEmitter::on_stack(int offset) { return qword[rsp + offset]; }

const Xbyak::Operand& BrgemmEmitter::row_counter() const {
    static const Xbyak::Address slot = Xbyak::util::qword[Xbyak::util::rsp + kRowCounter];
    return uses_tiles() ? static_cast<const Xbyak::Operand&>(slot) : row_counter_;
}

const Xbyak::Operand& BrgemmEmitter::column_counter() const {
    static const Xbyak::Address slot = Xbyak::util::qword[Xbyak::util::rsp + kColumnCounter];
    return uses_tiles() ? static_cast<const Xbyak::Operand&>(slot) : column_counter_;
}

std::int64_t BrgemmEmitter::elements_of_last_step() const {
    return spec_.k % (depth_ * elements_per_word(spec_.a_type));
}

// Whether finished tiles are C as they are.
bool BrgemmEmitter::stores_tiles() const {
    return (spec_.c_type == DType::f32 || spec_.c_type == DType::s32) && !spec_.zero_point_a &&
           !spec_.zero_point_b && spec_.epilogue == Epilogue{} && spec_.gaps == Gaps{} &&
           (spec_.c_type == DType::s32) == is_int8(spec_.a_type);
}

void BrgemmEmitter::open_tiles() {
    mov(scratch_, rsp);
    sub(rsp, kFrameBytes);
    and_(rsp, -kTileRowBytes);
    mov(on_stack(kStack), scratch_);
    // Every page from the top down: a stack too small ends at its guard page, not beyond.
    for (int page = kStack - kPageBytes; page > -kPageBytes; page -= kPageBytes) {
        test(on_stack(std::max(page, 0)), rsp);
    }
    mov(a_stride_, a_row_);
    mov(b_stride_, spec_.ldb * kWordBytes);
    Xbyak::Label kept;
    mov(scratch_, arg(offsetof(BrgemmArgs, tiles)));
    test(scratch_, scratch_);
    jnz(kept, T_NEAR);
    mov(on_stack(kOwnState), scratch_);
    lea(scratch_, on_stack(kOwnState));
    L(kept);
    mov(on_stack(kConfigured), scratch_);
    if (spec_.zero_point_a || spec_.zero_point_b) {
        load_constant(0, kBytesOfOne);
        for (int row = 0; row < kMostTileRows; ++row) {
            vmovaps(ptr[rsp + kOnes + row * kTileRowBytes], vector(0));
        }
    }
    if (elements_of_last_step() > 0) start_last_step();
    if (!changes_configuration_) configure_tiles(plan_.columns[0], plan_.columns[0].rows[0].tile);
}

void BrgemmEmitter::close_tiles() {
    Xbyak::Label kept;
    cmp(qword[args_ + offsetof(BrgemmArgs, tiles)], 0);
    jne(kept);
    tilerelease();
    L(kept);
    mov(rsp, on_stack(kStack));
}

void BrgemmEmitter::configure_tiles(const ColumnGroup& columns, const Tile& tile) {
    const TileConfiguration configuration =
        tile_configuration(spec_, tile, columns.masked ? plan_.tail_lanes : kMostTileRows);
    Xbyak::Label configured;
    mov(scratch_, on_stack(kConfigured));
    mov(k_, configuration.key);
    cmp(ptr[scratch_], k_);
    je(configured);
    mov(ptr[scratch_], k_);
    ldtilecfg(ptr[line(configuration.bytes)]);
    L(configured);
}

void BrgemmEmitter::start_tiles() {
    tiles_map_ = tile_map(spec_, tile_);
    const bool from_c = spec_.beta == 1 && size_of(spec_.c_type) == kWordBytes;
    for (int i = from_c ? tiles_map_.b_sums : 0; i < tiles_map_.ones_a; ++i) tilezero(Tmm(i));
    if (from_c) {
        mov(scratch_, c_row_);
        for_each_tile([&](int tile, int row, int column) {
            tileloadd(Tmm(tile), ptr[c_at(row, column) + scratch_]);
        });
    }
    if (spec_.trans_a) {
        mov(k_, (1U << tile_rows(tile_, 0).count) - 1);
        kmovw(row_words_, k_.cvt32());
        mov(k_, (1U << tile_rows(tile_, tiles_map_.row_tiles - 1).count) - 1);
        kmovw(last_row_words_, k_.cvt32());
    }
    mov(scratch_, kTileRowBytes);
    if (spec_.zero_point_a) tileloadd(Tmm(tiles_map_.ones_a), ptr[rsp + scratch_ + kOnes]);
    if (spec_.zero_point_b) tileloadd(Tmm(tiles_map_.ones_b), ptr[rsp + scratch_ + kOnes]);
}

// Zeros where no element is copied to, and the bytes of A that are.
void BrgemmEmitter::start_last_step() {
    zero(0);
    for (int row = 0; row < kMostTilesAcross * kMostTileRows; ++row) {
        vmovaps(ptr[rsp + kLastB + row * kTileRowBytes], vector(0));
    }
    // Less than a row of a tile.
    mov(k_, (std::uint64_t{1} << elements_of_last_step() * size_of(spec_.a_type)) - 1);
    kmovq(last_bytes_, k_);
}

// Copies the last step of A and B: behind the last element of a row of A nothing may be touched,
// and what stands behind that of B may be anything, NaN included.
void BrgemmEmitter::copy_last_step(int step) {
    const std::int64_t group = elements_per_word(spec_.a_type);
    const std::int64_t elements = elements_of_last_step();
    for (int row = 0; row < tile_.rows && !spec_.trans_a; ++row) {
        vmovdqu8(vector(0) | last_bytes_ | T_z, ptr[a_at(row, step)]);
        vmovaps(ptr[rsp + kLastA + row * kTileRowBytes], vector(0));
    }
    for (std::int64_t w = 0; w * group < elements; ++w) {
        const auto valid = static_cast<int>(std::min(group, elements - w * group));
        for (int v = 0; v < tile_.vectors; ++v) {
            load(0,
                 b_ + displacement(step * b_step_ + w * spec_.ldb * kWordBytes + v * kTileRowBytes),
                 is_tail(v));
            if (valid < group) and_constant(0, valid_bits(spec_.b_type, valid));
            vmovaps(ptr[rsp + kLastB + displacement(v * kTileBytes + w * kTileRowBytes)],
                    vector(0));
        }
    }
}

void BrgemmEmitter::load_a_tile(int row_tile, int step, bool last) {
    const int row = tile_rows(tile_, row_tile).first;
    const Tmm to(tiles_map_.a_at(row_tile));
    if (spec_.trans_a) transpose_a_tile(row_tile, step, last);
    if (last || spec_.trans_a) {
        tileloadd(to, ptr[rsp + scratch_ + kLastA + row * kTileRowBytes]);
    } else if (loops_columns_) {
        tileloadd(to, ptr[a_at(row, step) + a_stride_]);
    } else {  // read once: what stays in the L1 cache is B
        tileloaddt1(to, ptr[a_at(row, step) + a_stride_]);
    }
}

// A tile of A from words that lie down its columns, by way of the stack. What is beyond k is zero.
void BrgemmEmitter::transpose_a_tile(int row_tile, int step, bool last) {
    const TileRows rows = tile_rows(tile_, row_tile);
    const int group = static_cast<int>(elements_per_word(spec_.a_type));
    const int elements = last ? static_cast<int>(elements_of_last_step()) : depth_ * group;
    const std::int64_t from = step * a_step_ + rows.first * kWordBytes;
    const Xbyak::Opmask& mask = row_tile + 1 < tiles_map_.row_tiles ? row_words_ : last_row_words_;
    for (int w = 0; w < kMostTileRows; ++w) {
        const int valid = std::clamp(elements - w * group, 0, group);
        if (valid == 0) {
            zero(w);
            continue;
        }
        const auto at = ptr[a_ + displacement(from + w * spec_.lda * kWordBytes)];
        rows.count < kMostTileRows ? vmovups(vector(w) | mask | T_z, at) : vmovups(vector(w), at);
        if (valid < group) and_constant(w, valid_bits(spec_.a_type, valid));
    }
    transpose_words();
    for (int row = 0; row < rows.count; ++row) {
        vmovaps(ptr[rsp + kLastA + (rows.first + row) * kTileRowBytes], vector(row));
    }
}

// Sixteen registers of sixteen words; sixteen more are overwritten.
void BrgemmEmitter::transpose_words() {
    const auto row = [](int i) { return Xbyak::Zmm(i); };
    const auto other = [](int i) { return Xbyak::Zmm(kMostTileRows + i); };
    constexpr std::uint8_t kEvenQuarters = 0x88;
    constexpr std::uint8_t kOddQuarters = 0xdd;
    for (int i = 0; i < kMostTileRows; i += 2) {
        vunpcklps(other(i), row(i), row(i + 1));
        vunpckhps(other(i + 1), row(i), row(i + 1));
    }
    for (int i = 0; i < kMostTileRows; i += 4) {
        for (int half = 0; half < 2; ++half) {
            vunpcklpd(row(i + 2 * half), other(i + half), other(i + half + 2));
            vunpckhpd(row(i + 2 * half + 1), other(i + half), other(i + half + 2));
        }
    }
    for (const int i : {0, 1, 2, 3, 8, 9, 10, 11}) {
        vshuff32x4(other(i), row(i), row(i + 4), kEvenQuarters);
        vshuff32x4(other(i + 4), row(i), row(i + 4), kOddQuarters);
    }
    for (int i = 0; i < kMostTileRows / 2; ++i) {
        vshuff32x4(row(i), other(i), other(i + 8), kEvenQuarters);
        vshuff32x4(row(i + 8), other(i), other(i + 8), kOddQuarters);
    }
}

void BrgemmEmitter::load_b_tile(int column_tile, int step, bool last) {
    const Tmm to(tiles_map_.b_at(column_tile));
    const auto part = displacement(step * b_step_ + column_tile * kTileRowBytes);
    tileloadd(to, last ? ptr[rsp + scratch_ + kLastB + column_tile * kTileBytes]
                       : ptr[b_ + b_stride_ + part]);
    if (spec_.zero_point_a) {
        multiply_tiles(tiles_map_.b_sums + column_tile, tiles_map_.ones_a, to.getIdx());
    }
}

void BrgemmEmitter::tile_step(int step, bool last) {
    if (last) copy_last_step(step);
    const TileMap& map = tiles_map_;
    const auto load_row = [&](int r) {
        load_a_tile(r, step, last);
        if (spec_.zero_point_b) multiply_tiles(map.a_sums + r, map.a_at(r), map.ones_b);
    };
    const int outer = map.holds_a() ? map.column_tiles : map.row_tiles;
    const int inner = map.holds_a() ? map.row_tiles : map.column_tiles;
    for (int i = 0; i < outer; ++i) {
        map.holds_a() ? load_b_tile(i, step, last) : load_row(i);
        for (int j = 0; j < inner; ++j) {
            if (i == 0) map.holds_a() ? load_row(j) : load_b_tile(j, step, last);
            const int r = map.holds_a() ? j : i;
            const int s = map.holds_a() ? i : j;
            multiply_tiles(map.c(r, s), map.a_at(r), map.b_at(s));
        }
    }
    if (!last) fetch_for_tiles(step);
}

// Every few steps, which `turns`, a counter of runs of `steps`, tells.
void BrgemmEmitter::keep_awake(const Reg& turns, int steps) {
    Xbyak::Label not_now;
    const auto period = static_cast<int>(std::bit_ceil(kStepsAwake / static_cast<unsigned>(steps)));
    test(turns.cvt8(), period - 1);
    jnz(not_now);
    tilestored(ptr[rsp + kAwake], Tmm(tiles_map_.b_at(0)));  // no index: all rows to one line
    L(not_now);
}

// A line of each row of A ahead, and the tile's share of the lines of B.
void BrgemmEmitter::fetch_for_tiles(int step) {
    fetch_share(step);
    const int rows_of_a = spec_.trans_a ? depth_ : tile_.rows;
    const std::int64_t row_of_a = spec_.trans_a ? spec_.lda * kWordBytes : a_row_;
    for (int row = 0; spec_.prefetch_a && row < rows_of_a; ++row) {
        prefetcht1(ptr[a_ahead_ + displacement(row * row_of_a + step * a_step_)]);
    }
    for (int w = 0; fetched_lines_ > 0 && w < depth_; ++w) {
        const std::int64_t row = step * b_step_ + w * spec_.ldb * kWordBytes;
        for (int line = 0; line < fetched_lines_; ++line) {
            prefetcht1(ptr[b_ahead_ + displacement(row + line * kLineBytes)]);
        }
    }
}

void BrgemmEmitter::multiply_tiles(int to, int a, int b) {
    const Tmm c(to), x(a), y(b);
    if (spec_.a_type == DType::bf16) return tdpbf16ps(c, x, y);
    const bool unsigned_b = spec_.b_type == DType::u8;
    if (spec_.a_type == DType::s8) return unsigned_b ? tdpbsud(c, x, y) : tdpbssd(c, x, y);
    unsigned_b ? tdpbuud(c, x, y) : tdpbusd(c, x, y);
}

void BrgemmEmitter::finish_tiles() {
    if (stores_tiles()) {
        mov(scratch_, c_row_);
        for_each_tile([&](int tile, int row, int column) {
            tilestored(ptr[c_at(row, column) + scratch_], Tmm(tile));
        });
        return;
    }
    if (packs_bytes(spec_)) return finish_bytes();
    const Tile block = tile_;
    const int row_bytes = block.vectors * kTileRowBytes;
    mov(scratch_, row_bytes);
    for_each_tile([&](int tile, int row, int column) {
        const int at = kSums + row * row_bytes + column * kTileRowBytes;
        tilestored(ptr[rsp + scratch_ + at], Tmm(tile));
    });
    for (int s = 0; spec_.zero_point_a && s < block.vectors; ++s) {
        tilestored(ptr[rsp + scratch_ + kSumsOfB + s * kTileRowBytes], Tmm(tiles_map_.b_sums + s));
    }
    mov(scratch_, kTileRowBytes);
    for (int r = 0; spec_.zero_point_b && r < tiles_map_.row_tiles; ++r) {
        const int at = kSumsOfA + tile_rows(block, r).first * kTileRowBytes;
        tilestored(ptr[rsp + scratch_ + at], Tmm(tiles_map_.a_sums + r));
    }
    finish_rows_of(block);
}

// The epilogue of the vectors' kernels on so many rows at once as there are registers for.
void BrgemmEmitter::finish_rows_of(const Tile& block) {
    const int at_once = std::min({block.rows, kMostRowsAtOnce, kMostVectorsAtOnce / block.vectors});
    const int times = block.rows / at_once;
    lea(a_, ptr[rsp + kSums]);
    if (spec_.zero_point_b) lea(b_, ptr[rsp + kSumsOfA]);
    Xbyak::Label next;
    mov(k_.cvt32(), times);
    L(next);
    finish_rows({.rows = at_once, .vectors = block.vectors});
    add(a_, at_once * block.vectors * kTileRowBytes);
    if (spec_.zero_point_b) add(b_, at_once * kTileRowBytes);
    add(c_, immediate(at_once * c_row_));
    if (spec_.epilogue.relu_mask) add(mask_, immediate(at_once * spec_.ldmask));
    dec(k_.cvt32());
    jnz(next, T_NEAR);
    const int rest = block.rows % at_once;
    if (rest > 0) finish_rows({.rows = rest, .vectors = block.vectors});
    sub(c_, immediate(times * at_once * c_row_));
    if (spec_.epilogue.relu_mask) sub(mask_, immediate(times * at_once * spec_.ldmask));
    tile_ = block;
}

// Beyond the last column the stack holds what some other function left, not to be computed with.
void BrgemmEmitter::finish_rows(const Tile& rows) {
    tile_ = rows;
    map_ = {};
    map_.b_sums = rows.accumulators();
    map_.a_sums = map_.b_sums + (spec_.zero_point_a ? rows.vectors : 0);
    map_.b = map_.a_sums + (spec_.zero_point_b ? rows.rows : 0);
    for_each_accumulator([&](int row, int v, int index) {
        load(index, a_ + (row * rows.vectors + v) * kTileRowBytes, is_tail(v));
    });
    for (int v = 0; spec_.zero_point_a && v < rows.vectors; ++v) {
        load(map_.b_sums + v, rsp + (kSumsOfB + v * kTileRowBytes), is_tail(v));
    }
    for (int row = 0; spec_.zero_point_b && row < rows.rows; ++row) {
        broadcast(map_.a_sums + row, b_ + row * kTileRowBytes);
    }
    if (spec_.beta == 1 && size_of(spec_.c_type) != kWordBytes) {
        for_each_accumulator([&](int row, int v, int index) {
            load_elements(map_.b, c_at(row, v), spec_.c_type, is_tail(v));
            add_floats(index, map_.b);
        });
    }
    subtract_zero_points();
    if (spec_.epilogue.int_bias) {  // tiles begin with zeros
        combine_columns(offsetof(BrgemmArgs, int_bias), &BrgemmEmitter::add_words);
    }
    apply_epilogue();
    store_tile();
    if (spec_.gaps != Gaps{}) zero_gaps();
}

}  // namespace dlprim
