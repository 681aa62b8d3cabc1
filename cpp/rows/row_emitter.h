// The generator of one row program. Two nests: rows outside, and for each pass a loop along the
// row; or strips of columns outside and all rows inside, where columns' values stay in registers.
// Both end a row with single vectors and one masked one: how many elements that has is a number of
// the call. Rows of at most one vector have nests without loops where a program waits for sums.
// Stages live in four files: the nests (emit_rows.cpp), memory and tails
// (emit_row_memory.cpp), operations (emit_row_operations.cpp) and what is taken along the row
// (emit_row_reductions.cpp).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <vector>

#include "jit/element_assembler.h"
#include "rows/row_args.h"
#include "rows/row_plan.h"

namespace dlprim {

// A comparison of numbers, as the instruction calls it; of a number with itself it is of no NaN.
inline constexpr std::uint8_t kOrdered = 7;

class RowEmitter : private ElementAssembler {
public:
    static constexpr std::size_t kMostCodeBytes = 1 << 19;
    static constexpr int kWidening = 31;  // AVX-512

    // `plan` and the buffer of kMostCodeBytes must outlive the emitter.
    RowEmitter(const RowPlan& plan, void* buffer);

    std::vector<std::uint8_t> emit();

private:
    using Place = Xbyak::RegExp;

    // Numbers of the call, in the frame.
    enum class Number : std::uint8_t { main_end, limit, tail };

    // One of the vectors under way together, and whether it is the last, partial one of a row.
    struct Lane {
        int index;
        bool masked;
    };

    // emit_rows.cpp
    void prologue();
    void epilogue();
    void ends_of_row();
    void point_at_operands();
    void point_at_scratch();
    void next_row();
    void rows_by_length();
    template <class Body>
    void passes_of_rows(const Body& body);
    void strips();
    void rows_of_lists();
    void strip(int vectors, bool masked);
    void listed_rows(int vectors, bool masked);
    void strip_columns(int vectors, bool masked, bool at_end);
    template <class Body>
    void along_row(const RowPass& pass, const Body& body);
    template <class Body>
    void main_loop(const RowPass& pass, const Body& body);
    void body(const RowPass& pass, int vectors, bool masked);
    void body_step(const RowStep& step, Lane lane);
    void single_steps(const std::vector<RowStep>& steps);

    bool has_bf16() const { return isa() >= Isa::avx512_bf16; }

    // emit_row_memory.cpp
    Xbyak::Reg64 pointer_to(int operand, const Xbyak::Reg64& spare);
    Place place_of(int operand, std::int32_t offset, int lane);
    Place place_of(const RowStep& step, int lane) {
        return place_of(step.detail, step.offset, lane);
    }
    Place kept_place(int row, int lane);
    // The frame: vectors of the plan, a mask and a partial vector on its way, numbers, pointers.
    Place stack_vector(int index) const { return rsp + at(index * 64); }
    Xbyak::Address number_of_call(Number number) {
        return qword[stack_vector(plan_.stack_vectors + 2) + at(static_cast<int>(number) * 8)];
    }
    Xbyak::Address pointer_of(int operand) {
        return qword[stack_vector(plan_.stack_vectors + 3) + at(operand * 8)];
    }
    Place argument(int operand) const {
        return rdi + offsetof(RowArgs, operands) + at(operand) * sizeof(RowArgs::Operand);
    }
    void load_tail_mask(int to) { vmovups(vector(to), ptr[stack_vector(plan_.stack_vectors)]); }
    void load_elements_of(int operand, std::int32_t offset, int to, Lane lane);
    void prepare_widening();
    void widen(int to, const Place& from, bool masked);
    void emit_upper_halves();
    void add_chosen(const RowStep& step, int to, Lane lane);
    void store_tensor(const RowStep& step, Lane lane);
    void add_to_column(const RowStep& step, Lane lane);
    bool begins_line(int operand, int lane) const;
    void fetch_ahead(int operand, const Place& from, int lane);
    void place_at(const Xbyak::Reg64& to, const Xbyak::Reg64& entry);
    void to_element(const Xbyak::Reg64& place);
    void fetch_placed_row(int vectors);
    void fetch(const RowStep& step, int lane);
    Place point_at_bits(const RowStep& step, int lane);
    void gate(const RowStep& step, int to, Lane lane);
    void store_bits(const RowStep& step, Lane lane);
    void store_elements_at(const Place& to, int from, DType dtype, bool masked, bool exact = false);
    void copy_part(bool in, DType dtype);
    void load_single(const RowStep& step, int to);
    void load_first(const RowStep& step, int to);
    void store_single(const RowStep& step);
    void narrow(int to, int from);
    void narrow_subnormals();

    // emit_row_operations.cpp
    void operation(const RowStep& step, int to, int lane);
    void arithmetic(const RowStep& step, int to, int lane);
    void multiply_and_add(const RowStep& step, int to, int lane);
    void word_product(const RowStep& step, int to, int lane);
    void exclusive_or(const RowStep& step, int to, int lane);
    void unary(const RowStep& step, int to, int lane);
    void curve(const RowStep& step, int value, int count);
    void curve_in_turns(const RowStep& step, int vectors);
    void compare(Comparison comparison, const Vector& a, const Xbyak::Operand& b);
    void compare_floats(std::uint8_t code, const Vector& a, const Xbyak::Operand& b,
                        const Vector& mask);
    void blend(const Vector& to, const Vector& otherwise, const Xbyak::Operand& then,
               const Vector& mask);
    void select(const RowStep& step, int to, int lane);
    void logarithm(int to, int x);
    void polynomial_of(int to, int x, std::initializer_list<float> terms);

    // functions/emit_rare_function.cpp
    void rare(const RowStep& step, int to, int lane);
    void emit_rare_calls();

    // emit_row_reductions.cpp
    void start_reductions(const RowPass& pass, int from, int to);
    void accumulate(const RowStep& step, Lane lane);
    void accumulate_about(const RowStep& step, Lane lane);
    void accumulate_one_about(const RowStep& step, Lane lane);
    void empty_sums(const RowPass& pass);
    void finish_reductions(const RowPass& pass, int elements);
    void combined(RowOp op, const Vector& result, const Vector& value, const Vector& other);
    void combine_lanes(const RowReduction& it, int lanes);
    void move_totals(const RowPass& pass, bool in);
    void combine_across(RowOp op, int index, int to, int elements);

    // Where values are.
    int register_of(const RowPlace& place, int lane) const;
    int in_register(const RowPlace& place, int lane, int scratch);
    template <class Body>
    void with(const RowPlace& place, int lane, const Body& body);
    Xbyak::Address number(float value) { return constant(std::bit_cast<std::uint32_t>(value)); }
    void set(int to, float value) { load_constant(to, std::bit_cast<std::uint32_t>(value)); }

    // Code for what is rare, behind the rest: the halves of `from` go to `to`.
    struct Narrowing {
        Xbyak::Label begin;
        Xbyak::Label end;
        int to;
        int from;
    };

    // The same where elements are rare.
    struct RareCall {
        Xbyak::Label begin;
        Xbyak::Label end;
        RowStep step;
        int to = 0;
        int lane = 0;
    };

    // What the mask of comparisons is of, if anything.
    struct Compared {
        RowPlace a;
        RowPlace b;
        Comparison comparison = Comparison::less;
        int lane = -1;

        friend bool operator==(const Compared&, const Compared&) = default;
    };

    const RowPlan& plan_;
    int lanes_;
    Compared compared_;
    int vectors_ = 1;      // of the body that is written,
    bool masked_ = false;  // and whether it is of a partial one
    // Of operands, and behind kMostRowOperands of rows of scratch: a register, or none (rax).
    std::vector<Xbyak::Reg64> pointers_;
    std::deque<Narrowing> narrowings_;
    std::deque<RareCall> rare_calls_;
    Xbyak::Label partial_masks_;
    Xbyak::Label lane_bits_;
    Xbyak::Label upper_halves_;
    bool widens_ = false;  // bfloat16 by a shuffle
};

// A value as an operand of an instruction, wherever it is.
template <class Body>
void RowEmitter::with(const RowPlace& place, int lane, const Body& body) {
    if (place.kind == RowPlace::Kind::constant) {
        body(constant(place.bits));
    } else if (place.kind == RowPlace::Kind::operand && !masked_) {
        const Place memory = place_of(place.index, static_cast<std::int32_t>(place.bits), lane);
        fetch_ahead(place.index, memory, lane);
        body(ptr[memory]);
    } else if (place.kind == RowPlace::Kind::stack) {
        body(ptr[stack_vector(place.index)]);
    } else {
        body(vector(in_register(place, lane, plan_.registers.operand)));
    }
}

}  // namespace dlprim
