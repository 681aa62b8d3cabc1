#include <array>
#include <cstddef>
#include <memory>

#include "brgemm/args.h"
#include "brgemm/emit.h"
#include "brgemm/vector_assembler.h"

namespace dlprim {
namespace {

constexpr std::size_t kMostCodeBytes = 1 << 18;
constexpr int kQuad = 4;

// The nest that is emitted, from the outside in: column blocks, row tiles, batch, k. The batch
// loop is inside the register tile, so C is loaded and stored once for the whole reduction.
class BrgemmEmitter : private VectorAssembler {
public:
    BrgemmEmitter(const BrgemmPlan& plan, void* buffer)
        : VectorAssembler(plan.isa, buffer, kMostCodeBytes), plan_(plan), spec_(plan.spec) {
        const auto element = size_of(spec_.dtype);
        a_row_ = (spec_.trans_a ? 1 : spec_.lda) * element;
        a_step_ = (spec_.trans_a ? spec_.lda : 1) * element;
        b_step_ = spec_.ldb * element;
        c_row_ = spec_.ldc * element;
        loops_rows_ = false;
        std::int64_t blocks = 0;
        for (const ColumnGroup& group : plan_.columns) {
            blocks += group.count;
            std::int64_t tiles = 0;
            for (const RowGroup& row : group.rows) tiles += row.count;
            loops_rows_ = loops_rows_ || tiles > 1;
        }
        loops_columns_ = blocks > 1;
    }

    std::vector<std::uint8_t> emit() {
        prologue();
        for (const ColumnGroup& group : plan_.columns) column_group(group);
        epilogue();
        emit_constants();
        return {getCode(), getCode() + getSize()};
    }

private:
    using Reg = Xbyak::Reg64;

    std::vector<Reg> saved_registers() const {
        std::vector<Reg> saved;
        if (loops_rows_) saved.insert(saved.end(), {a_offset_, row_counter_});
        if (loops_columns_) saved.insert(saved.end(), {b_offset_, column_counter_});
        return saved;
    }

    void prologue() {
        for (const Reg& reg : saved_registers()) push(reg);
        if (plan_.tail_lanes > 0) set_tail(plan_.tail_lanes);
        if (loops_columns_) xor_(b_offset_.cvt32(), b_offset_.cvt32());
    }

    void epilogue() {
        const std::vector<Reg> saved = saved_registers();
        for (auto reg = saved.rbegin(); reg != saved.rend(); ++reg) pop(*reg);
        vzeroupper();
        ret();
    }

    void column_group(const ColumnGroup& group) {
        Xbyak::Label next;
        const bool loop = group.count > 1;
        if (loop) {
            mov(column_counter_, group.count);
            align(16);
            L(next);
        }
        mov(c_, arg(offsetof(BrgemmArgs, c)));
        if (loops_columns_) add(c_, b_offset_);
        if (loops_rows_) xor_(a_offset_.cvt32(), a_offset_.cvt32());
        for (const RowGroup& row : group.rows) row_group(group, row);
        if (loops_columns_) add(b_offset_, group.vectors * vector_bytes());
        if (loop) {
            dec(column_counter_);
            jnz(next, T_NEAR);
        }
    }

    void row_group(const ColumnGroup& columns, const RowGroup& group) {
        tile_ = group.tile;
        map_ = register_map(spec_, plan_.isa, tile_);
        masked_ = columns.masked;
        Xbyak::Label next;
        const bool loop = group.count > 1;
        if (loop) {
            mov(row_counter_, group.count);
            align(16);
            L(next);
        }
        tile(group.unroll);
        if (loops_rows_) {
            add(a_offset_, immediate(tile_.rows * a_row_));
            add(c_, immediate(tile_.rows * c_row_));
        }
        if (loop) {
            dec(row_counter_);
            jnz(next, T_NEAR);
        }
    }

    void tile(int unroll) {
        Xbyak::Label next;
        Xbyak::Label done;
        start_accumulators();
        mov(batch_, arg(offsetof(BrgemmArgs, batch)));
        first_matrices();
        test(batch_, batch_);
        jle(done, T_NEAR);
        align(16);
        L(next);
        next_matrices();
        k_loop(unroll);
        dec(batch_);
        jnz(next, T_NEAR);
        L(done);
        add_up_sets();
        apply_epilogue();
        store_tile();
    }

    void start_accumulators() {
        for (int i = 0; i < tile_.accumulators(); ++i) {
            const int within = i % (tile_.rows * tile_.vectors);
            if (spec_.beta == 1 && i == within) {
                load(map_.accumulators + i, c_at(within / tile_.vectors, within % tile_.vectors),
                     is_tail(within % tile_.vectors));
            } else {
                zero(map_.accumulators + i);
            }
        }
    }

    // Points a_next_ and b_next_ at what Addressing says of the first pair: the pair itself, or
    // the entry of the table that leads to it.
    void first_matrices() {
        if (spec_.addressing == Addressing::offset) {
            mov(a_next_, arg(offsetof(BrgemmArgs, offsets_a)));
            mov(b_next_, arg(offsetof(BrgemmArgs, offsets_b)));
        } else {
            mov(a_next_, arg(offsetof(BrgemmArgs, a)));
            mov(b_next_, arg(offsetof(BrgemmArgs, b)));
        }
        if (spec_.addressing == Addressing::stride) add_tile_offsets(a_next_, b_next_);
    }

    // Sets a_ and b_ to this tile's part of the next pair and steps on.
    void next_matrices() {
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

    void add_tile_offsets(const Reg& a, const Reg& b) {
        if (loops_rows_) add(a, a_offset_);
        if (loops_columns_) add(b, b_offset_);
    }

    void k_loop(int unroll) {
        const std::int64_t iterations = spec_.k / unroll;
        const int rest = static_cast<int>(spec_.k % unroll);
        Xbyak::Label next;
        if (iterations > 1) {
            mov(k_.cvt32(), static_cast<std::uint32_t>(iterations));
            align(16);
            L(next);
        }
        k_steps(unroll);
        if (iterations > 1 || rest > 0) {
            add(a_, immediate(unroll * a_step_));
            add(b_, immediate(unroll * b_step_));
        }
        if (iterations > 1) {
            dec(k_.cvt32());
            jnz(next, T_NEAR);
        }
        k_steps(rest);
    }

    void k_steps(int steps) {
        for (int step = 0; step < steps; ++step) one_step(step, steps - step);
    }

    // Outer product of one column of A and one row of B.
    void one_step(int step, int steps_left) {
        const int quad_rows = load_quads(step, steps_left);
        load_b(step);
        for (int row = 0; row < tile_.rows; ++row) {
            if (row < quad_rows) {
                const int quad = spec_.trans_a ? row / kQuad : row;
                spread_quad(map_.a, map_.quads + quad, (spec_.trans_a ? row : step) % kQuad);
                multiply_row(row, step);
            } else if (avx512() && tile_.vectors == 1) {
                fma_embedded(accumulator(row, 0, step), map_.b, a_at(row, step));
            } else {
                broadcast(map_.a, a_at(row, step));
                multiply_row(row, step);
            }
        }
    }

    // Brings the quads that this step needs and returns how many rows have their elements in one.
    // A quad lies along k, or along the rows where A is transposed.
    int load_quads(int step, int steps_left) {
        if (spec_.trans_a) {
            const int quads = tile_.quad_rows / kQuad;
            for (int i = 0; i < quads; ++i) broadcast_quad(map_.quads + i, a_at(i * kQuad, step));
            return quads * kQuad;
        }
        const int within = step % kQuad;
        if (within + steps_left < kQuad) return 0;
        for (int row = 0; within == 0 && row < tile_.quad_rows; ++row) {
            broadcast_quad(map_.quads + row, a_at(row, step));
        }
        return tile_.quad_rows;
    }

    void load_b(int step) {
        for (int v = 0; v < tile_.vectors; ++v) {
            load(map_.b + v, b_ + displacement(step * b_step_ + v * vector_bytes()), is_tail(v));
        }
    }

    void multiply_row(int row, int step) {
        for (int v = 0; v < tile_.vectors; ++v) fma(accumulator(row, v, step), map_.a, map_.b + v);
    }

    void add_up_sets() {
        const int elements = tile_.rows * tile_.vectors;
        for (int set = 1; set < tile_.sets; ++set) {
            for (int i = 0; i < elements; ++i) {
                add_vector(map_.accumulators + i, map_.accumulators + set * elements + i);
            }
        }
    }

    void apply_epilogue() {
        int scratch = map_.b;
        if (spec_.epilogue.bias) {
            mov(scratch_, arg(offsetof(BrgemmArgs, bias)));
            if (loops_columns_) add(scratch_, b_offset_);
            for (int v = 0; v < tile_.vectors; ++v) {
                load(scratch + v, scratch_ + v * vector_bytes(), is_tail(v));
                for (int row = 0; row < tile_.rows; ++row)
                    add_vector(accumulator(row, v), scratch + v);
            }
            scratch += tile_.vectors;
        }
        if (spec_.epilogue.activation == Activation::relu) {
            zero(scratch);
            for (int row = 0; row < tile_.rows; ++row) {
                for (int v = 0; v < tile_.vectors; ++v) relu(accumulator(row, v), scratch);
            }
        }
    }

    void store_tile() {
        for (int row = 0; row < tile_.rows; ++row) {
            for (int v = 0; v < tile_.vectors; ++v) {
                store(c_at(row, v), accumulator(row, v), is_tail(v), map_.b);
            }
        }
    }

    bool is_tail(int vector) const { return masked_ && vector == tile_.vectors - 1; }

    int accumulator(int row, int vector, int step = 0) const {
        const int set = step % tile_.sets;
        return map_.accumulators + (set * tile_.rows + row) * tile_.vectors + vector;
    }

    Xbyak::RegExp a_at(int row, int step) const {
        return a_ + displacement(row * a_row_ + step * a_step_);
    }

    Xbyak::RegExp c_at(int row, int vector) const {
        return c_ + displacement(row * c_row_ + vector * vector_bytes());
    }

    Xbyak::Address arg(std::size_t offset) { return ptr[args_ + offset]; }

    // BrgemmSpec bounds leading dimensions so that these fit in 32 bits.
    static std::size_t displacement(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }
    static std::uint32_t immediate(std::int64_t bytes) { return static_cast<std::uint32_t>(bytes); }

    const BrgemmPlan& plan_;
    const BrgemmSpec& spec_;
    std::int64_t a_row_;   // bytes from row to row of A
    std::int64_t a_step_;  // bytes from k to k + 1 in A
    std::int64_t b_step_;
    std::int64_t c_row_;
    bool loops_rows_;
    bool loops_columns_;

    Tile tile_;
    RegisterMap map_;
    bool masked_ = false;

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
    const Reg b_offset_ = rbp;  // bytes to this column block in B, C and the bias
    const Reg column_counter_ = r15;
};

}  // namespace

std::vector<std::uint8_t> emit_brgemm(const BrgemmPlan& plan) {
    const auto buffer = std::make_unique_for_overwrite<std::uint8_t[]>(kMostCodeBytes);
    return BrgemmEmitter(plan, buffer.get()).emit();
}

}  // namespace dlprim
