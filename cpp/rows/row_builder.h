// How row programs are written: values are added, multiplied and compared as numbers are, and what
// has been said becomes a RowSpec. The same operation on the same values is one instruction.
//
//     RowBuilder row;
//     const RowValue x = row.tensor(DType::f32);
//     const RowValue power = exp(x - highest(x));
//     row.store(DType::f32, power / sum(power));  // softmax
//     const RowSpec spec = row.spec();
//
// Operands are numbered in the order in which they are named here: RowArgs has them in that order.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "jit/activation.h"
#include "rows/row_spec.h"

namespace dlprim {

class RowBuilder;

class RowValue {
public:
    RowValue(float number) : number_(number) {}  // NOLINT: a number is a value
    RowValue(RowBuilder* builder, std::int16_t index) : builder_(builder), index_(index) {}

private:
    friend class RowBuilder;

    RowBuilder* builder_ = nullptr;  // null: a number, which becomes an instruction where it meets
    std::int16_t index_ = kNoValue;  // a value of a program
    float number_ = 0;
    std::int16_t operand_ = kNoValue;  // one that is loaded where it is first used
};

// A comparison as such has no value; it selects one.
struct RowCondition {
    Comparison comparison;
    RowValue a;
    RowValue b;
};

class RowBuilder {
public:
    RowBuilder() = default;
    RowBuilder(const RowBuilder&) = delete;
    RowBuilder& operator=(const RowBuilder&) = delete;
    ~RowBuilder() = default;

    // Operands that are read. They are loaded where they are first used, or before anything is
    // stored as their type.
    RowValue tensor(DType dtype) { return loadable({RowShape::tensor, dtype}); }
    RowValue column(DType dtype = DType::f32) { return loadable({RowShape::column, dtype}); }
    RowValue per_row() { return loadable({RowShape::row}); }
    RowValue scalar() { return loadable({RowShape::scalar}); }
    // Elements of the operand that are so many bytes from its own, loaded here. Throws
    // std::invalid_argument where those are 2^31 or more, as do write() and fetch().
    RowValue at(RowValue operand, std::int64_t offset);
    // A tensor of which parts are loaded, each as late as it is asked for and anew each time, so
    // that none waits in a register; results must not lie where a later load is.
    std::uint8_t parts(DType dtype) { return named({RowShape::tensor, dtype}); }
    RowValue load(std::uint8_t parts, std::int64_t offset);
    // `value` where a bit of this new operand is set, else 0; several values may ask the same bits.
    std::uint8_t bits() { return named({RowShape::bits, DType::u8}); }
    RowValue gated(std::uint8_t bits, RowValue value) { return made(RowOp::gate, {value}, bits); }
    // Rows that a list names, as numbers or as words, and the two numbers that it has for each.
    // What is carried from one to the next begins as `initial`, and results know its last value.
    RowValue listed(DType dtype) { return loadable({RowShape::listed, dtype}); }
    RowValue listed_at_places(DType dtype, std::int32_t place_bytes) {
        spec_.place_bytes = place_bytes;
        return listed(dtype);
    }
    RowValue number() { return made(RowOp::number, {}); }
    RowValue factor() { return made(RowOp::factor, {}); }
    RowValue carried(float initial);
    void carry(RowValue carried, RowValue next);
    // `total`, which is not -0, with x added where all four bytes of `wanted` are that of a listed
    // row of them, a new operand.
    RowValue add_chosen(RowValue wanted, RowValue x, RowValue total) {
        return made(RowOp::add_chosen, {wanted, x, total}, named({RowShape::listed, DType::u8}));
    }
    // The length of a row.
    RowValue columns() { return made(RowOp::columns, {}); }
    // The first element of each row of a tensor, asked for before anything is stored there; 0 where
    // rows are empty.
    RowValue first(RowValue tensor) {
        return made(RowOp::first, {}, static_cast<std::uint8_t>(tensor.operand_));
    }
    // A number as a value of this program: an operation that has numbers only takes one of these.
    RowValue constant(float number) { return {this, index_of(number)}; }

    // Operands that are written. A result may be stored where an operand of the same type lies, if
    // no later pass over the row reads that.
    void store(DType dtype, RowValue value) {
        write(RowOp::store, result(RowShape::tensor, dtype), 0, value);
    }
    void store_per_row(RowValue value) {
        write(RowOp::store, result(RowShape::row, DType::f32), 0, value);
    }
    void add_to_column(RowValue value) {
        write(RowOp::add_to_column, result(RowShape::column, DType::f32), 0, value);
    }
    // A bit for every element, set where the value is not <= 0.
    void store_bits(RowValue value) {
        write(RowOp::store_bits, result(RowShape::bits, DType::u8), 0, value);
    }
    // One of them that is written at several offsets, by any of the instructions above.
    std::uint8_t result(RowShape shape, DType dtype) { return named({shape, dtype, true}); }
    void write(RowOp op, std::uint8_t result, std::int64_t offset, RowValue value);

    // Bytes in front of what is loaded and stored that are fetched for later, or entries of a list
    // of places.
    void fetch_ahead(std::int32_t far) { spec_.ahead = far; }
    // Vectors under way together, at most; a power of two.
    void take_at_most(std::int32_t vectors);
    // A tensor that is only fetched for later, which may lie anywhere; another part of it.
    std::uint8_t fetch(DType dtype);
    void fetch(std::uint8_t tensor, std::int64_t offset);

    // The program up to here. Throws what validate() does.
    RowSpec spec() const;

    // An instruction on values of one program.
    static RowValue apply(RowOp op, std::initializer_list<RowValue> inputs,
                          std::uint8_t detail = 0);

private:
    std::uint8_t named(RowOperand operand);
    RowValue loadable(RowOperand operand);
    RowValue loaded(std::size_t operand, std::int64_t offset = 0);
    RowValue made(RowOp op, std::initializer_list<RowValue> inputs, std::uint8_t detail = 0);
    // One that is there already, or another one.
    RowValue instruction(const RowInstruction& it);
    RowValue another(const RowInstruction& it);
    std::int16_t index_of(RowValue value);
    decltype(RowInstruction::inputs) indices_of(std::initializer_list<RowValue> values);

    RowSpec spec_;
    std::vector<std::size_t> read_;  // operands, but those that at() loads
};

inline RowValue operator+(RowValue a, RowValue b) { return RowBuilder::apply(RowOp::add, {a, b}); }
inline RowValue operator-(RowValue a, RowValue b) {
    return RowBuilder::apply(RowOp::subtract, {a, b});
}
inline RowValue operator*(RowValue a, RowValue b) {
    return RowBuilder::apply(RowOp::multiply, {a, b});
}
inline RowValue operator/(RowValue a, RowValue b) {
    return RowBuilder::apply(RowOp::divide, {a, b});
}
inline RowValue operator-(RowValue x) { return RowBuilder::apply(RowOp::negate, {x}); }

inline RowValue smaller(RowValue a, RowValue b) {
    return RowBuilder::apply(RowOp::smaller, {a, b});
}
inline RowValue larger(RowValue a, RowValue b) { return RowBuilder::apply(RowOp::larger, {a, b}); }
// a * b + c, rounded once.
inline RowValue multiply_add(RowValue a, RowValue b, RowValue c) {
    return RowBuilder::apply(RowOp::multiply_add, {a, b, c});
}
inline RowValue abs(RowValue x) { return RowBuilder::apply(RowOp::absolute, {x}); }
inline RowValue sqrt(RowValue x) { return RowBuilder::apply(RowOp::square_root, {x}); }
inline RowValue nearest(RowValue x) { return RowBuilder::apply(RowOp::nearest, {x}); }
inline RowValue exp(RowValue x) { return RowBuilder::apply(RowOp::exponential, {x}); }
inline RowValue log(RowValue x) { return RowBuilder::apply(RowOp::logarithm, {x}); }
inline RowValue activated(Activation activation, RowValue x) {
    if (activation == Activation::none) return x;
    return RowBuilder::apply(RowOp::activation, {x}, static_cast<std::uint8_t>(activation));
}

// As it would be after it was stored and loaded again.
inline RowValue rounded(DType dtype, RowValue x) {
    if (dtype == DType::f32) return x;
    return RowBuilder::apply(RowOp::rounded, {x}, static_cast<std::uint8_t>(dtype));
}

// Of 32 bits as integers without a sign: operands are words where they are called float32.
inline RowValue add_words(RowValue a, RowValue b) {
    return RowBuilder::apply(RowOp::add_words, {a, b});
}
inline RowValue low_product(RowValue a, RowValue b) {
    return RowBuilder::apply(RowOp::low_product, {a, b});
}
inline RowValue high_product(RowValue a, RowValue b) {
    return RowBuilder::apply(RowOp::high_product, {a, b});
}
inline RowValue exclusive_or(RowValue a, RowValue b, RowValue c) {
    return RowBuilder::apply(RowOp::exclusive_or, {a, b, c});
}
inline RowCondition words_at_least(RowValue a, RowValue b) {
    return {Comparison::words_at_least, a, b};
}

inline RowCondition operator<(RowValue a, RowValue b) { return {Comparison::less, a, b}; }
inline RowCondition operator<=(RowValue a, RowValue b) { return {Comparison::less_equal, a, b}; }
inline RowCondition operator==(RowValue a, RowValue b) { return {Comparison::equal, a, b}; }
// Larger, or NaN.
inline RowCondition beats(RowValue a, RowValue b) { return {Comparison::beats, a, b}; }
inline RowCondition is_nan(RowValue x) { return {Comparison::unordered, x, x}; }
inline RowValue select(RowCondition condition, RowValue then, RowValue otherwise) {
    return RowBuilder::apply(RowOp::select, {condition.a, condition.b, then, otherwise},
                             static_cast<std::uint8_t>(condition.comparison));
}

inline RowValue last(RowValue carried) { return RowBuilder::apply(RowOp::last, {carried}); }

// Along the row.
inline RowValue sum(RowValue x) { return RowBuilder::apply(RowOp::sum, {x}); }
// Of x - centre, which is the same along the row; exactly 0 where x is centre everywhere.
inline RowValue sum_about(RowValue x, RowValue centre) {
    return RowBuilder::apply(RowOp::sum_about, {x, centre});
}
inline RowValue highest(RowValue x) { return RowBuilder::apply(RowOp::highest, {x}); }
inline RowValue lowest(RowValue x) { return RowBuilder::apply(RowOp::lowest, {x}); }

// The same program with all tensors of float32 stored around the caches, where rows are their own.
RowSpec streaming(RowSpec spec);

}  // namespace dlprim
