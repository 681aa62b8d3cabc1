#include <algorithm>
#include <memory>
#include <utility>

#include "brgemm/brgemm_emitter.h"
#include "brgemm/emit.h"
#include "brgemm/multiply.h"
#include "jit/code.h"

namespace dlprim {

BrgemmEmitter::BrgemmEmitter(const BrgemmPlan& plan, void* buffer)
    : ElementAssembler(plan.isa, buffer, kMostCodeBytes),
      plan_(plan),
      spec_(plan.spec),
      passes_(cost_of(plan.spec, plan.isa).passes),
      depth_(uses_tiles() ? tile_depth(plan.spec) : 1) {
    a_row_ = spec_.trans_a ? kWordBytes : spec_.lda * size_of(spec_.a_type);
    a_step_ = (spec_.trans_a ? spec_.lda : 1) * depth_ * kWordBytes;
    b_step_ = depth_ * spec_.ldb * kWordBytes;
    c_row_ = spec_.ldc * size_of(spec_.c_type);
    c_vector_ = plan_.lanes * size_of(spec_.c_type);
    const ColumnGroup& first = plan_.columns.front();
    reads_counts_ = plan_.reads_turns;
    loops_columns_ = plan_.columns.size() > 1 || first.count != 1;
    for (const ColumnGroup& group : plan_.columns) {
        const std::int64_t count = group.rows.front().count;
        loops_rows_ = loops_rows_ || group.rows.size() > 1 || count != 1;
        reads_counts_ = reads_counts_ || group.count == kReadAtCall || count == kReadAtCall;
    }
    changes_configuration_ = plan_.columns.size() > 1 || first.rows.size() > 1;
}

std::vector<std::uint8_t> BrgemmEmitter::emit() {
    prologue();
    for (const ColumnGroup& group : plan_.columns) column_group(group);
    finish();
    return {getCode(), getCode() + getSize()};
}

std::vector<BrgemmEmitter::Reg> BrgemmEmitter::saved_registers() const {
    std::vector<Reg> saved;
    if (loops_rows_) saved.push_back(a_offset_);
    if (loops_rows_ || uses_tiles()) saved.push_back(row_counter_);
    if (loops_columns_) saved.push_back(b_offset_);
    if (loops_columns_ || uses_tiles()) saved.push_back(column_counter_);
    if (spec_.epilogue.relu_mask) saved.push_back(mask_);
    if (spec_.prefetch_b || spec_.fetch_rows > 0) saved.push_back(b_ahead_);
    if (spec_.prefetch_a) saved.push_back(a_ahead_);
    return saved;
}

void BrgemmEmitter::prologue() {
    for (const Reg& reg : saved_registers()) push(reg);
    if (reads_counts_) push(c_);  // the second argument
    if (plan_.tail_lanes > 0) set_tail(plan_.tail_lanes);
    if (spec_.fetch_rows > 0) {
        mov(b_ahead_, arg(offsetof(BrgemmArgs, b)));
        add(b_ahead_, arg(offsetof(BrgemmArgs, b_ahead)));
    }
    if (uses_tiles()) open_tiles();
    if (registers_beside_products(spec_, plan_.isa) > 0) load_kept_ends();
    if (loops_columns_) xor_(b_offset_.cvt32(), b_offset_.cvt32());
}

void BrgemmEmitter::finish() {
    if (uses_tiles()) close_tiles();
    if (reads_counts_) pop(c_);
    const std::vector<Reg> saved = saved_registers();
    for (auto reg = saved.rbegin(); reg != saved.rend(); ++reg) pop(*reg);
    vzeroupper();
    ret();
    emit_constants();
}

void BrgemmEmitter::column_group(const ColumnGroup& group) {
    const auto columns = [&] {
        column_pointers();
        if (loops_rows_) xor_(a_offset_.cvt32(), a_offset_.cvt32());
        for (const RowGroup& row : group.rows) row_group(group, row);
        if (loops_columns_) add(b_offset_, group.vectors * vector_bytes());
    };
    repeat(column_counter(), group.count, columns, count_++);
}

void BrgemmEmitter::column_pointers() {
    // Words of B to elements of C: 4, 2 or 1 bytes; to mask bits.
    const auto advance = [&](const Reg& pointer, int shift) {
        mov(scratch_, b_offset_);
        if (shift > 0) shr(scratch_, shift);
        add(pointer, scratch_);
    };
    mov(c_, arg(offsetof(BrgemmArgs, c)));
    if (spec_.epilogue.relu_mask) mov(mask_, arg(offsetof(BrgemmArgs, relu_mask)));
    if (!loops_columns_) return;
    const std::int64_t element = size_of(spec_.c_type);
    advance(c_, element == 4 ? 0 : element == 2 ? 1 : 2);
    if (spec_.epilogue.relu_mask) advance(mask_, 5);
}

void BrgemmEmitter::row_group(const ColumnGroup& columns, const RowGroup& group) {
    tile_ = group.tile;
    if (!uses_tiles()) map_ = register_map(spec_, plan_.isa, tile_);
    masked_ = columns.masked;
    if (changes_configuration_ && uses_tiles()) configure_tiles(columns, tile_);
    share_fetches(columns, group);
    const auto rows = [&] {
        tile(group.unroll);
        if (!loops_rows_) return;
        add(a_offset_, immediate(tile_.rows * a_row_));
        add(c_, immediate(tile_.rows * c_row_));
        if (spec_.epilogue.relu_mask) add(mask_, immediate(tile_.rows * spec_.ldmask));
    };
    const int count = std::exchange(count_, count_ + 2);
    turns_ = count + 1;
    repeat(row_counter(), group.count, rows, count);
}

// All row tiles use the same B, so each of them fetches its share of the lines of every step.
void BrgemmEmitter::share_fetches(const ColumnGroup& columns, const RowGroup& group) {
    std::int64_t tiles = 0;
    tiles_before_ = 0;
    tiles_here_ = group.count;
    for (const RowGroup& each : columns.rows) {
        if (&each == &group) tiles_before_ = tiles;
        tiles += each.count;
    }
    const std::int64_t bytes = tile_.vectors * vector_bytes();
    const std::int64_t lines = (bytes + kLineBytes - 1) / kLineBytes;
    const std::int64_t share = (lines + tiles - 1) / std::max<std::int64_t>(tiles, 1);
    const bool fetches = spec_.prefetch_b && tiles_before_ * share < lines;
    fetched_lines_ = fetches ? static_cast<int>(share) : 0;
}

// To the share of this tile.
void BrgemmEmitter::point_ahead_in_b() {
    const std::int64_t share = fetched_lines_ * std::int64_t{kLineBytes};
    if (tiles_here_ > 1) {
        imul(b_ahead_, row_counter(), static_cast<int>(-share));
        add(b_ahead_, immediate((tiles_before_ + tiles_here_) * share));
        add(b_ahead_, b_);
    } else {
        mov(b_ahead_, b_);
        add(b_ahead_, immediate(tiles_before_ * share));
    }
    add(b_ahead_, arg(offsetof(BrgemmArgs, b_ahead)));
}

void BrgemmEmitter::tile(int unroll) {
    Xbyak::Label next;
    Xbyak::Label last;
    Xbyak::Label done;
    Xbyak::Label end;
    const bool beside = ends_beside_products();
    uses_tiles() ? start_tiles() : start_accumulators();
    if (spec_.prefetch_c && spec_.beta == 0) prefetch_c();
    mov(batch_, arg(offsetof(BrgemmArgs, batch)));
    first_matrices();
    if (uses_tiles()) mov(scratch_, kTileRowBytes);  // the distance of rows on the stack
    test(batch_, batch_);
    jle(done, T_NEAR);
    if (beside) {
        dec(batch_);
        jz(last, T_NEAR);
    }
    align(16);
    L(next);
    next_pair();
    k_loop(unroll, 0);
    dec(batch_);
    jnz(next, T_NEAR);
    if (beside) {
        L(last);
        next_pair();
        k_loop(unroll, steps_beside_end());
        end_beside_products();
        jmp(end, T_NEAR);
    }
    L(done);
    if (uses_tiles()) return finish_tiles();
    add_up_sets();
    if (registers_beside_products(spec_, plan_.isa) > 0) {
        end_alone();
        L(end);
        return;
    }
    subtract_zero_points();
    apply_epilogue();
    store_tile();
    if (spec_.gaps != Gaps{}) zero_gaps();
}

// Points at the next matrices, and at what is fetched while they are multiplied.
void BrgemmEmitter::next_pair() {
    next_matrices();
    if (spec_.prefetch_a) {
        mov(a_ahead_, arg(offsetof(BrgemmArgs, a_ahead)));
        add(a_ahead_, a_);
    }
    if (fetched_lines_ > 0) point_ahead_in_b();
    if (fetches_residual()) {  // of the next tile
        point_at_residual(scratch_);
        add(scratch_, immediate(tile_.rows * c_row_));
    }
}

void BrgemmEmitter::start_accumulators() {
    const int elements = tile_.rows * tile_.vectors;
    const bool given = spec_.beta == 1 || starts_from_bias() || spec_.epilogue.int_bias;
    for (int i = map_.accumulators + (given ? elements : 0); i < map_.b; ++i) zero(i);
    if (map_.b > map_.b_sums) {
        const bool words =
            plan_.multiply == Multiply::widen_int8 || plan_.multiply == Multiply::dot_int16;
        load_constant(map_.ones, words ? 0x00010001 : 0x01010101);
    }
    if (starts_from_bias()) load_columns(offsetof(BrgemmArgs, bias));
    if (spec_.epilogue.int_bias) load_columns(offsetof(BrgemmArgs, int_bias));
    if (spec_.beta == 0) return;
    for_each_accumulator([&](int row, int v, int index) {
        load_elements(index, c_at(row, v), spec_.c_type, is_tail(v));
    });
}

// The lines of C, and of the residual that the epilogue adds: its loads stand behind all products,
// where nothing is left to hide what they wait for. So many at once that the core drops some: those
// of the residual are fetched for the next tile as well, spread over the products of this one.
void BrgemmEmitter::prefetch_c() {
    const bool residual = spec_.epilogue.residual;
    if (residual) point_at_residual(scratch_);
    const std::int64_t bytes = tile_.vectors * c_vector_;
    for (int row = 0; row < tile_.rows; ++row) {
        for (std::int64_t line = 0; line < bytes; line += kLineBytes) {
            if (residual) prefetcht0(ptr[element_at(scratch_, row, 0) + displacement(line)]);
            prefetchw(ptr[c_at(row, 0) + displacement(line)]);
        }
    }
}

// Points a_next_ and b_next_ at what Addressing says of the first pair: the pair itself, or the
// entry of the table that leads to it.
void BrgemmEmitter::first_matrices() {
    const bool offsets = spec_.addressing == Addressing::offset;
    mov(a_next_, arg(offsets ? offsetof(BrgemmArgs, offsets_a) : offsetof(BrgemmArgs, a)));
    mov(b_next_, arg(offsets ? offsetof(BrgemmArgs, offsets_b) : offsetof(BrgemmArgs, b)));
    if (spec_.addressing == Addressing::stride) add_tile_offsets(a_next_, b_next_);
}

// Sets a_ and b_ to this tile's part of the next pair and steps on.
void BrgemmEmitter::next_matrices() {
    if (spec_.addressing == Addressing::stride) {
        mov(a_, a_next_);
        mov(b_, b_next_);
        add(a_next_, arg(offsetof(BrgemmArgs, stride_a)));
        add(b_next_, arg(offsetof(BrgemmArgs, stride_b)));
        return;
    }
    mov(a_, ptr[a_next_]);
    mov(b_, ptr[b_next_]);
    if (spec_.addressing == Addressing::offset) {
        add(a_, arg(offsetof(BrgemmArgs, a)));
        add(b_, arg(offsetof(BrgemmArgs, b)));
    }
    add_tile_offsets(a_, b_);
    add(a_next_, 8);
    add(b_next_, 8);
}

void BrgemmEmitter::add_tile_offsets(const Reg& a, const Reg& b) {
    if (loops_rows_) add(a, a_offset_);
    if (loops_columns_) add(b, b_offset_);
}

std::vector<std::uint8_t> emit_brgemm(const BrgemmPlan& plan) {
    // As aligned as the code will be where it runs, so that what is aligned here is aligned there.
    std::size_t room = BrgemmEmitter::kMostCodeBytes + kCodeAlignment;
    const auto memory = std::make_unique_for_overwrite<std::uint8_t[]>(room);
    void* buffer = memory.get();
    std::align(kCodeAlignment, BrgemmEmitter::kMostCodeBytes, buffer, room);
    return BrgemmEmitter(plan, buffer).emit();
}

int encoder_version() { return Xbyak::VERSION; }

}  // namespace dlprim
