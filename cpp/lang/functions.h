// What formulas call by name: C's functions of floats, casts, activations, and the operators, which
// are functions, too. How many operands each has and what it gives say the checks; what it
// computes, in double precision, is for the interpreter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace dlprim {

// Numbers without fractions count places; truths are what conditions are.
enum class ValueType : std::uint8_t { truth, integer, real };

struct Function {
    enum class Rule : std::uint8_t {
        promotes,  // of numbers; gives a real one if an operand is
        real,      // of numbers
        compares,  // of numbers; gives a truth
        logic,     // of truths
        selects,   // of a truth and two of one kind: "?:"
        cast,
    };

    std::string_view name;
    std::size_t operands;  // "-" has one, too
    Rule rule;
    double (*value)(std::span<const double>);
};

// Null where no function has this name.
const Function* find_function(std::string_view name);

// How formulas write what NumPy and PyTorch have a function of this name for; empty for none. These
// names are tensors' here.
std::string_view spelling_of(std::string_view name);

// How tightly an operator with two operands binds; 0: it is none.
int tightness(std::string_view text);

// Of tensors, and of casts: throws std::out_of_range unless it is the name of one. Without a name,
// as the operands of one statement are, real.
ValueType type_named(std::string_view name);
bool is_type(std::string_view name);

}  // namespace dlprim
