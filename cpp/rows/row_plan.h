// From a row program to everything that its code is made of: passes over the row, which value lives
// in which register, what is computed once per row or once per call, what waits in scratch. This is
// where everything is decided; registers are counted in row_registers.h. A plan depends on the
// program and the ISA level alone, so plans of any machine are made and tested on any other.
//
// A value that depends on a sum along the row begins a new pass over it. What such a pass needs of
// an earlier one is computed again where that is cheap and waits in scratch where it is not.
// Programs with columns but no sums along rows run in strips of a few vectors instead: the columns'
// values stay in registers and the rows are the inner loop.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jit/isa.h"
#include "rows/row_spec.h"

namespace dlprim {

inline std::size_t at(int index) { return static_cast<std::size_t>(index); }

struct RowPlace {
    enum class Kind : std::uint8_t {
        none,
        vectors,   // a register for each of the vectors that take turns
        columns,   // one for each vector of a strip, through all rows
        sums,      // one for each of the vectors, of what is taken along the row
        single,    // one register for all
        stack,     // one vector in memory for all; or for each of those that take no turns
        constant,  // in memory behind the code; its bits are in `bits`
        operand,   // where it lies: a float32 value that one instruction reads
    };
    Kind kind = Kind::none;
    int index = 0;
    std::uint32_t bits = 0;  // of an operand, the offset

    bool in_memory() const {
        return kind == Kind::stack || kind == Kind::constant || kind == Kind::operand;
    }
    bool is_single() const { return kind == Kind::stack || kind == Kind::single; }

    friend bool operator==(const RowPlace&, const RowPlace&) = default;
};

// An instruction whose values have places. Of a reduction in a pass, and of what is added to a
// column of a strip, `to` is what it is added to; a sum of two inputs is one of their products. Of
// keep and reload, `detail` is the row of scratch. What is carried begins as `from`.
struct RowStep {
    RowOp op = RowOp::load;
    RowPlace to = {};
    std::array<RowPlace, 4> from = {};
    std::uint8_t detail = 0;
    std::int32_t offset = 0;
    bool streams = false;  // a store around the caches; a fetch of the next row
    bool exact = false;    // a store of what bfloat16 holds
    bool narrow = false;   // a function whose results bfloat16 alone takes
};

// Whether it is a product of words with a power of two that it knows.
inline bool is_shift(const RowStep& step) {
    const bool of_words = step.op == RowOp::low_product || step.op == RowOp::high_product;
    return of_words && step.from[1].kind == RowPlace::Kind::constant &&
           std::has_single_bit(step.from[1].bits);
}

struct RowReduction {
    RowOp op = RowOp::sum;
    RowPlace accumulators;
    RowPlace result;
    int total = 0;  // of a sum: two vectors on the stack, for where chains of it end
};

struct RowPass {
    std::vector<RowStep> before;  // single values, once per row
    std::vector<RowStep> body;    // once per vector
    std::vector<RowReduction> reductions;
};

// First register of each role; values of columns and accumulators have `unroll` registers each.
struct RowRegisters {
    int operand = 0;  // behind scratch, which begins at 0: a partial vector of an operand
    int vectors = 0;
    int columns = 0;
    int accumulators = 0;  // of reductions
    int singles = 0;
    int total = 0;
};

struct RowPlan {
    RowSpec spec;
    Isa isa = Isa::scalar;
    bool by_strips = false;
    bool is_listed = false;  // by strips; the first pass is for each listed row
    int unroll = 1;          // vectors under way together, a power of two where the plan reduces
    // Whether these take their steps in turns, each with registers of its own: long chains of
    // dependent steps fill the CPU's window, short ones overlap in it anyway.
    bool takes_turns = false;
    int curves = 1;  // of these, as many as take the steps inside of one function in turns, too
    RowRegisters registers;
    std::vector<RowStep> once;     // single values of all rows
    std::vector<RowStep> carried;  // what it is before the first listed row
    std::vector<RowStep> columns;  // at the begin of a strip: loads, and sums at its end
    std::vector<RowPass> passes;   // the last one's body may be empty
    int kept_rows = 0;             // of scratch
    int stack_vectors = 0;
};

// `isa` is avx2 or higher. Throws std::invalid_argument where a program is not one or needs more
// registers than there are.
RowPlan make_row_plan(const RowSpec& spec, Isa isa);

}  // namespace dlprim
