// A statement that is no product of matrices, at the speed of memory: programs of the row engine
// with as long rows as there are. Indices that are one as far as every operand is concerned become
// one. The index along which most elements are neighbours is the columns of a program; an operand
// that lies otherwise is copied first, and sums that are too long for one chain, or for one thread,
// are made in parts which a statement of their own adds up. So results are the same bits for any
// number of threads. Bytes are numbers like others: float32 when they are read, rounded to nearest
// even and saturated when they are written, the lowest where the value is no number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "primitives/reorder/reorder.h"
#include "primitives/statements/bound_statement.h"
#include "primitives/statements/statement_pass.h"

namespace dlprim {

// Throws std::invalid_argument for int32: the row engine computes in float32.
void require_numbers(const BoundOperand& it, const std::string& name);

class RowStatement {
public:
    // Throws std::invalid_argument where an operand is int32, where elements of the result lie on
    // each other, and where the row engine lacks a function.
    explicit RowStatement(const BoundStatement& statement);

    // First elements of the arrays. The result may lie on an operand that has the same strides.
    void run(std::span<const void* const> operands, void* result) const;

    // A line for each program and each copy.
    std::string described() const;

    // An operand is the result, one of the statement's, the numbers 0, 1, 2, .., or scratch.
    struct Memory {
        enum class Of : std::uint8_t { result, operand, numbers, scratch };

        Of of = Of::result;
        std::int64_t place = 0;  // which operand, or bytes in scratch
    };
    struct Copy {
        Reorder reorder;
        std::int64_t from = 0;  // bytes
        std::int64_t to = 0;
    };
    struct Step {
        std::variant<StatementPass, Copy> what;
        std::vector<Memory> operands = {};
        Memory result = {};
        std::string described = {};
    };

private:
    std::vector<Step> steps_ = {};
    std::vector<float> numbers_ = {};
    std::int64_t scratch_bytes_ = 0;
};

}  // namespace dlprim
