// Which index of a statement becomes the columns of a program, and which the rows: what each choice
// costs, in vectors that are computed or copied. Arithmetic on extents and distances alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "primitives/statements/bound_statement.h"
#include "primitives/statements/statement_pass.h"

namespace dlprim {

// Places that are written out in a program at most, and instructions.
inline constexpr std::int64_t kMostPlaces = 32, kMostInstructions = 192;

struct RowChoice {
    RowWalk kind = RowWalk::map;
    std::size_t column = 0;
    double cost = 0;
};

RowChoice best_choice(const BoundStatement& it);

// Of a program: statements that do something for each element of a row, and sums along it.
struct RowWork {
    double rows = 1;
    double rows_of_call = 1;
    double columns = 1;
    double bodies = 1;
    double sums = 0;
};
// In vectors that are computed.
double cost_of(const RowWork& work);

// Columns of a part of a row, where rows are too few for all threads.
inline constexpr std::int64_t kPartColumns = 16 * 1024;
inline bool takes_parts(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kFewRows = 32;
    return columns >= 2 * kPartColumns && rows < kFewRows;
}

// Elements that an operand has for all values of the indices.
std::int64_t elements_of(const BoundStatement& it, const BoundOperand& operand);
// Whether a program takes it as it is.
bool lies_well(const BoundOperand& operand, std::size_t column);
bool can_be_written_out(const BoundStatement& it, std::size_t index);
// Reduced indices but `kept`, the shortest first, as long as they are few.
std::vector<std::size_t> written_out(const BoundStatement& it, std::size_t kept, std::int64_t most);
// PassRoles::kNone where none is.
std::size_t longest_reduced(const BoundStatement& it);
// Of which there are enough for a call, and of these the ones that are closest to each other.
std::size_t best_row(const BoundStatement& it, std::size_t column,
                     const std::vector<std::size_t>& taken);

}  // namespace dlprim
