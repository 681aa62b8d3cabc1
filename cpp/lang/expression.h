// What stands on the right of a statement, as a tree. Indices, sizes, tensors and functions are
// names here: what a name is only the statement and its definition say. An expression is a value,
// so passes over a definition (ranges, gradients, what runs) are functions from trees to trees.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dlprim {

struct Expression {
    enum class Kind : std::uint8_t {
        number,  // 2, 0.5
        name,    // an index, a size or a scalar
        read,    // an element of a tensor; the operands are its places
        call,    // of a function or a type, by its name; an operator is a function: "+" "?:" "&&"
    };

    Kind kind = Kind::number;
    double number = 0;
    bool is_integer = false;       // of a number: written without a point and without an exponent
    std::string name = {};         // of what is named, read or called
    bool may_lie_outside = false;  // of a read: "?", which is 0 outside the tensor
    std::vector<Expression> operands = {};
    std::int64_t position = 0;  // of its first character in the text, for messages
    std::int64_t levels = 1;    // of the tree, at most, where the parser made it
};

// Of a function, or an operator, by its name.
inline Expression call_of(std::string function, std::vector<Expression> operands) {
    return {.kind = Expression::Kind::call,
            .name = std::move(function),
            .operands = std::move(operands)};
}

}  // namespace dlprim
