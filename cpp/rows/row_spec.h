// What a row program computes, as a value: a list of operations in single assignment on elements
// of rows, and the operands they read and write. Nothing here knows of registers, loops or an ISA:
// a plan (row_plan.h) makes generated code of it, plain loops (row_reference.h) give it meaning.
//
// All arithmetic is float32, whatever the operands are stored as: they are widened when they are
// loaded and rounded to nearest even when they are stored.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "jit/dtype.h"

namespace dlprim {

// Operands of a program at most, which is what the arguments have room for.
inline constexpr int kMostRowOperands = 28;
// Those of a list, which all have a register.
inline constexpr int kMostListedOperands = 4;

// Where an operand has elements: everywhere, one per row, one per column, one at all. Bits are a
// tensor of them, the first of a byte in its lowest place, and every row begins with a byte.
// Where operands are listed, a list says which of their rows come in turn, and results have a row
// for several of these.
enum class RowShape : std::uint8_t { tensor, row, column, scalar, bits, listed };

struct RowOperand {
    RowShape shape = RowShape::tensor;
    DType dtype = DType::f32;
    bool written = false;

    friend bool operator==(const RowOperand&, const RowOperand&) = default;
};

enum class RowOp : std::uint8_t {
    load,      // of the operand `detail`
    constant,  // whose bits are in `bits`
    columns,   // the length of a row
    first,     // element of a row of the operand `detail`, a tensor; 0 of an empty row
    add,
    subtract,
    multiply,
    divide,
    smaller,       // the second where one is NaN
    larger,        // the same
    multiply_add,  // inputs 0 * 1 + 2, rounded once
    negate,
    absolute,
    square_root,
    nearest,  // whole number, halves to even
    exponential,
    logarithm,
    activation,  // the Activation in `detail`
    rounded,     // as a value of the type `detail` would be when it is loaded again
    gate,        // where the bit of the operand `detail` is set, else 0
    // Of 32 bits as integers without a sign, which wrap around.
    add_words,
    low_product,   // of 64 bits the lower ones
    high_product,  // and the upper ones
    exclusive_or,  // of three
    select,        // input 2 where the Comparison in `detail` holds of inputs 0 and 1, else input 3
    rare,  // input 2, but the RareFunction in `detail` of inputs 0 and 3 where input 1 says so
    // Along the row: one value for all of its elements. Of an empty row: 0, the lowest, the highest
    // number there is.
    sum,
    sum_about,  // of input 0 less input 1, which is the same along the row: 0 where both are alike
    highest,    // NaN is passed over where it can be
    lowest,
    // To the operand `detail`; around the caches where `bits` is not 0: a float32 tensor whose rows
    // begin at cache lines.
    store,
    store_bits,     // to the operand `detail`: set where the input is not <= 0
    add_to_column,  // to the float32 operand `detail`, for every row
    fetch,          // into the cache, from the tensor `detail`, of which nothing else is used
    // Of listed rows, and from one of them to the next, for every row of the results.
    add_chosen,  // input 2, and input 1 where all bytes of input 0 are that of the operand `detail`
    number,      // that the list has for the row
    factor,      // the same, of another list of numbers
    carried,     // the float32 in `bits` at first
    carry,       // the input is what the instruction `bits` is at the next one
    last,        // what is carried, the input, behind the last of them
    // Made by plans alone: to and from scratch, across passes over the row, or to the stack.
    keep,
    reload,
};

enum class Comparison : std::uint8_t { less, less_equal, equal, unordered, beats, words_at_least };

constexpr bool is_reduction(RowOp op) {
    return op == RowOp::sum || op == RowOp::sum_about || op == RowOp::highest ||
           op == RowOp::lowest;
}
constexpr bool is_sum(RowOp op) { return op == RowOp::sum || op == RowOp::sum_about; }
constexpr bool has_listed_number(RowOp op) { return op == RowOp::number || op == RowOp::factor; }
constexpr bool has_result(RowOp op) {
    return op != RowOp::store && op != RowOp::carry && op != RowOp::store_bits &&
           op != RowOp::add_to_column && op != RowOp::keep && op != RowOp::fetch;
}

int inputs_of(RowOp op);

inline constexpr std::int16_t kNoValue = -1;

struct RowInstruction {
    RowOp op = RowOp::load;
    std::array<std::int16_t, 4> inputs = {kNoValue, kNoValue, kNoValue, kNoValue};
    std::uint8_t detail = 0;
    std::uint32_t bits = 0;
    // Bytes from an operand's own element to the one that is meant.
    std::int32_t offset = 0;

    // Calls body(index) for each input that there is.
    template <class Body>
    void for_inputs(const Body& body) const {
        for (const std::int16_t input : inputs) {
            if (input != kNoValue) body(static_cast<std::size_t>(input));
        }
    }

    friend bool operator==(const RowInstruction&, const RowInstruction&) = default;
};

struct RowSpec {
    std::vector<RowOperand> operands;
    // An input is the index of an instruction before.
    std::vector<RowInstruction> instructions;
    // Bytes from an element of a tensor to the one that a load, or a store, fetches for later; none
    // where it is 0. For programs of columns, whose rows are many and may be far apart. With a list
    // of places, how many entries further the row begins that is fetched.
    std::int32_t ahead = 0;
    // Of an entry of the list: 4 or 8 where it is the place of a row among others, a signed
    // integer; 0 where it is a RowArgs::Listed.
    std::int32_t place_bytes = 0;
    // Vectors under way together, at most: programs that have as many add up in the same order.
    std::int32_t most_vectors = 8;

    friend bool operator==(const RowSpec&, const RowSpec&) = default;
};

// Throws std::invalid_argument that says what is wrong where a spec is not a program.
void validate(const RowSpec& spec);

bool is_listed(const RowSpec& spec);
inline bool has_places(const RowSpec& spec) { return spec.place_bytes != 0; }

// When an instruction runs: as soon as its inputs are there, for each listed row, or for each row
// of the results. Throws std::invalid_argument where one would run at both.
enum class RowTime : std::uint8_t { any, listed, result };
std::vector<RowTime> times_of(const RowSpec& spec);

// In which pass over the row each instruction is made: behind the sums that it needs. Of listed
// rows what is made for results is in the second one.
std::vector<int> passes_of(const RowSpec& spec);

// Whether the values of each instruction are the same along a row.
std::vector<bool> uniform_values(const RowSpec& spec);

// Whether bfloat16 holds all values of each instruction, so that storing them takes no rounding.
std::vector<bool> exact_values(const RowSpec& spec);

// How often each instruction is an input.
std::vector<int> uses_of(const RowSpec& spec);

// Of each instruction that adds up a product which nothing else reads: the product's index, else
// kNoValue. The two are one multiplication with addition, rounded once.
std::vector<std::int16_t> joined_products(const RowSpec& spec);

inline bool goes_around_caches(const RowSpec& spec) {
    return std::any_of(
        spec.instructions.begin(), spec.instructions.end(),
        [](const RowInstruction& it) { return it.op == RowOp::store && it.bits != 0; });
}

// Whether it is a long chain of dependent steps.
bool has_polynomial(const RowInstruction& it);

// In additions.
inline int cost_of(const RowInstruction& it) {
    if (it.op == RowOp::divide || it.op == RowOp::square_root) return 5;
    return has_polynomial(it) ? 15 : 1;
}

// How many columns are read.
inline int columns_read(const RowSpec& spec) {
    return static_cast<int>(std::count_if(
        spec.operands.begin(), spec.operands.end(),
        [](const RowOperand& it) { return it.shape == RowShape::column && !it.written; }));
}

inline bool touches_column(const RowSpec& spec, const RowInstruction& it) {
    return it.op == RowOp::add_to_column ||
           (it.op == RowOp::load && spec.operands[it.detail].shape == RowShape::column);
}

// Whether there are columns, and neither lists nor anything along the row; what is first in it
// might be overwritten by the strip before.
inline bool has_columns_alone(const RowSpec& spec) {
    bool found = false;
    for (const RowInstruction& it : spec.instructions) {
        if (is_reduction(it.op) || it.op == RowOp::first) return false;
        found = found || touches_column(spec, it);
    }
    return found && !is_listed(spec);
}

// Whether there is a column that one row adds to more than once.
inline bool adds_repeatedly(const RowSpec& spec) {
    std::set<std::pair<std::uint8_t, std::int32_t>> found;
    const auto is_repeated = [&](const RowInstruction& it) {
        return it.op == RowOp::add_to_column && !found.insert({it.detail, it.offset}).second;
    };
    return std::any_of(spec.instructions.begin(), spec.instructions.end(), is_repeated);
}

// Short and unique: how many operands and operations, and a hash of all.
std::string to_string(const RowSpec& spec);

}  // namespace dlprim

template <>
struct std::hash<dlprim::RowSpec> {
    std::size_t operator()(const dlprim::RowSpec& spec) const noexcept;
};
