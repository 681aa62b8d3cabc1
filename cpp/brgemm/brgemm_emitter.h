// The generator of one kernel. The nest it writes is, from the outside in: column blocks, row
// tiles, batch, k. The batch loop is inside the register tile, so C is loaded and stored once for
// the whole reduction. Stages live in five files: the nest (emit_brgemm.cpp), the steps along k
// (emit_steps.cpp, or amx/emit_amx.cpp where tiles are multiplied) and what happens to finished
// accumulators (emit_epilogue.cpp, or amx/emit_bytes.cpp where tiles become bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "brgemm/amx/tile_map.h"
#include "brgemm/args.h"
#include "brgemm/plan.h"
#include "jit/element_assembler.h"

namespace dlprim {

class BrgemmEmitter : private ElementAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = 1 << 19;

    // `plan` and the buffer of kMostCodeBytes must outlive the emitter.
    BrgemmEmitter(const BrgemmPlan& plan, void* buffer);

    std::vector<std::uint8_t> emit();

private:
    using Reg = Xbyak::Reg64;

    // One word of k, or the last one where k does not fill it.
    struct Step {
        int index;      // from where a_ and b_ point
        int elements;   // of k in it
        int following;  // steps from this one to the end of the unrolled run
        int first_row;
        int end_row;
    };

    // Rows of a tile whose words become bytes together: `vectors` of each, or its partial one.
    struct PackedRows {
        int row;
        int rows;
        int vector;
        int vectors;
        bool partial;
    };

    // Registers of what ends the sums of a tile as bytes.
    struct ByteEnds {
        int highest;
        int residual;        // which is loaded there
        int scales;          // one per vector of a row, or kInMemory
        int residual_scale;  // or kInMemory
        BytePacking packing;
    };
    static constexpr int kInMemory = -1;
    static constexpr int kLoopCounts = 0;  // on the stack, where they lie

    // Of what is emitted: a few instructions that depend on each other.
    using Stage = std::function<void()>;

    // Of a register with what another one holds.
    using Combine = void (BrgemmEmitter::*)(int to, int from);

    // emit_brgemm.cpp
    std::vector<Reg> saved_registers() const;
    void prologue();
    void finish();
    void column_group(const ColumnGroup& group);
    void column_pointers();
    void row_group(const ColumnGroup& columns, const RowGroup& group);
    void share_fetches(const ColumnGroup& columns, const RowGroup& group);
    void point_ahead_in_b();
    void tile(int unroll);
    void start_accumulators();
    void prefetch_c();
    void first_matrices();
    void next_pair();
    void next_matrices();
    void add_tile_offsets(const Reg& a, const Reg& b);

    // emit_steps.cpp
    void k_loop(int unroll, std::int64_t following);
    void k_steps(int steps);
    void step_along_k(int steps);
    void both_halves(int step);
    void widen_halves(int lower, int upper);
    void one_step(const Step& step, int pass);
    void prefetch(const Step& step, int run);
    std::int64_t share_of(int steps) const;
    void fetch_share(int step);
    int load_quads(const Step& step);
    void stream_b(const Step& step);
    void load_b(int v, const Step& step, int pass);
    void sum_b(int v);
    void load_a(int row, const Step& step, int pass);
    void load_partial_word(int row, const Step& step);
    void widen(int index, DType dtype, int pass);
    void multiply_embedded(int row, const Step& step);
    void multiply(int to, int a, int b);

    // amx/emit_amx.cpp
    bool uses_tiles() const { return plan_.multiply == Multiply::tiles; }
    std::int64_t elements_of_last_step() const;  // 0 where all steps are whole
    bool stores_tiles() const;
    void open_tiles();
    void close_tiles();
    void configure_tiles(const ColumnGroup& columns, const Tile& tile);
    void start_tiles();
    void start_last_step();
    void copy_last_step(int step);
    void load_a_tile(int row_tile, int step, bool last);
    void transpose_a_tile(int row_tile, int step, bool last);
    void transpose_words();
    void load_b_tile(int column_tile, int step, bool last);
    void tile_step(int step, bool last);
    void fetch_for_tiles(int step);
    void keep_awake(const Reg& turns, int steps);
    void multiply_tiles(int to, int a, int b);
    void finish_tiles();
    void finish_rows_of(const Tile& block);
    void finish_rows(const Tile& rows);
    Xbyak::Address on_stack(int offset);
    const Xbyak::Operand& row_counter() const;
    const Xbyak::Operand& column_counter() const;

    // amx/emit_bytes.cpp
    void finish_bytes();
    void load_ends();
    int bytes_of_row() const;
    void finish_vector(int row, int vector, int index);
    void store_row_of_bytes(int row);
    void finish_rows_of_bytes(int rows);

    // emit_epilogue.cpp
    void add_up_sets();
    void subtract_zero_points();
    void apply_epilogue();
    void apply_tensor_scale();
    void load_columns(std::size_t columns);
    void combine_columns(std::size_t columns, Combine combine);
    void point_at_columns(std::size_t columns, const Reg& pointer);
    void point_at_residual(const Reg& pointer);
    void apply_inner();
    void apply_residual();
    void apply_relu();
    void store_relu_mask(int row, int vector);
    void load_zero_point_a();
    void store_tile();
    void load_packing(const BytePacking& packing);
    void store_range();
    void end_sum(int row, int vector, int index, const ByteEnds& ends);
    std::vector<PackedRows> packed_rows(int first, int end) const;
    void pack_and_store(const PackedRows& rows, const BytePacking& packing);
    bool ends_beside_products() const;
    std::int64_t steps_beside_end() const;
    void load_kept_ends();
    void point_at_ends();
    std::vector<Stage> end_of_rows(int first, int end);
    void end_beside_products();
    void end_alone();
    void zero_gaps();

    bool is_tail(int vector) const { return masked_ && vector == tile_.vectors - 1; }
    bool shifts_a() const { return shift_of_a(spec_, plan_.isa) != 0; }
    bool fetches_residual() const {
        return spec_.prefetch_c && spec_.beta == 0 && spec_.epilogue.residual && !uses_tiles();
    }
    // A sum that begins here and is not scaled has the bias as its first term where the result is
    // rounded to bfloat16: a large bias costs the sum some bits, which float32 results would show.
    bool starts_from_bias() const {
        return spec_.beta == 0 && spec_.epilogue.bias && spec_.epilogue.scale == Scale::none &&
               spec_.c_type == DType::bf16 && !is_integer(spec_.a_type) && !uses_tiles();
    }
    int accumulator(int row, int vector, int step = 0) const;
    Xbyak::RegExp a_at(int row, int step) const;
    Xbyak::RegExp c_at(int row, int vector) const { return element_at(c_, row, vector); }
    Xbyak::RegExp element_at(const Reg& base, int row, int vector) const;
    Xbyak::Address arg(std::size_t offset) { return ptr[args_ + offset]; }

    template <typename Body>
    void for_each_accumulator(Body body) {
        for (int row = 0; row < tile_.rows; ++row) {
            for (int v = 0; v < tile_.vectors; ++v) body(row, v, accumulator(row, v));
        }
    }

    template <typename Body>
    void for_each_tile(Body body) {
        for (int r = 0; r < tiles_map_.row_tiles; ++r) {
            for (int s = 0; s < tiles_map_.column_tiles; ++s) {
                body(tiles_map_.c(r, s), tile_rows(tile_, r).first, s);
            }
        }
    }

    // What `body` emits, in a loop where it is to run more than once, or as often as the place
    // `count` of LoopCounts says.
    template <typename Body>
    void repeat(const Xbyak::Operand& counter, std::int64_t times, Body body, int count = 0) {
        Xbyak::Label next;
        const bool loops = times != 1;
        if (times == kReadAtCall) {
            const Reg times_left(counter.getIdx());
            mov(times_left, on_stack(kLoopCounts));
            mov(times_left, ptr[times_left + count * int{sizeof(std::int64_t)}]);
        } else if (loops) {
            mov(counter, immediate(times));
        }
        if (loops) {
            align(16);
            L(next);
        }
        body();
        if (loops) {
            dec(counter);
            jnz(next, T_NEAR);
        }
    }

    // BrgemmSpec bounds leading dimensions so that these fit in 32 bits.
    static std::size_t displacement(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }
    static std::uint32_t immediate(std::int64_t bytes) { return static_cast<std::uint32_t>(bytes); }

    const BrgemmPlan& plan_;
    const BrgemmSpec& spec_;
    int passes_;
    int depth_;            // words of k in a step
    std::int64_t a_row_;   // bytes from row to row of A
    std::int64_t a_step_;  // bytes from word to word of A along k, or from tile to tile
    std::int64_t b_step_;
    std::int64_t c_row_;
    std::int64_t c_vector_;  // bytes of C that a vector of sums becomes
    bool loops_rows_ = false;
    bool loops_columns_ = false;
    bool reads_counts_ = false;  // LoopCounts, the second argument
    int count_ = 0;              // the place there of what is written next
    int turns_ = 0;              // and of the turns along k

    Tile tile_;
    RegisterMap map_;
    bool masked_ = false;
    std::int64_t tiles_before_ = 0;  // of this column block, in earlier row groups
    std::int64_t tiles_here_ = 1;    // in this row group
    int fetched_lines_ = 0;          // of B ahead, for each step of a tile of this row group
    int fetched_rows_ = 0;           // of the next tile's residual, for each iteration along k
    TileMap tiles_map_;
    bool changes_configuration_ = false;  // of the tiles, within a call

    const Reg args_ = rdi;
    const Reg c_ = rsi;
    const Reg a_ = rax;
    const Reg b_ = rdx;
    const Reg k_ = rcx;
    const Reg batch_ = r10;
    const Reg a_next_ = r8;
    const Reg b_next_ = r9;
    const Reg scratch_ = r11;
    // Callee-saved, used only where there is more than one tile.
    const Reg a_offset_ = rbx;  // bytes to this row tile in A
    const Reg row_counter_ = r14;
    const Reg b_offset_ = rbp;  // bytes to this column block in B, in words: 4 per column
    const Reg column_counter_ = r15;
    const Reg mask_ = r12;     // where this tile's part of the relu mask begins
    const Reg b_ahead_ = r12;  // in kernels without a mask
    const Reg a_ahead_ = r13;
    const Reg a_stride_ = r14;  // in kernels with AMX tiles, whose counters are on the stack
    const Reg b_stride_ = r15;
    static constexpr ByteEnds kTileEnds = {
        .highest = 24,
        .residual = 29,
        .scales = 16,
        .residual_scale = 28,
        .packing = {.lowest = 25, .zero_point = 26, .order = 27}};
    // From the last register down: see registers_beside_products().
    static constexpr ByteEnds kVectorEnds = {
        .highest = 31,
        .residual = 27,
        .scales = kInMemory,
        .residual_scale = kInMemory,
        .packing = {.lowest = 30, .zero_point = 29, .order = 28}};
    const Xbyak::Opmask row_bytes_ = k2;   // of a row of C in a block that is stored as bytes
    const Xbyak::Opmask last_bytes_ = k3;  // of a row of A in the last step
    const Xbyak::Opmask row_words_ = k4;   // as many as a tile of a transposed A has rows
    const Xbyak::Opmask last_row_words_ = k5;
};

}  // namespace dlprim
