// Statements one after the other as one program of the row engine: a softmax, a normalisation, a
// gate. They share rows and columns, and all that they reduce is the columns, so that what one
// writes is, for the next, a value that is there already: it waits in a register, or in scratch as
// long as a row, and is stored only where others read it. Which of them fit is arithmetic on
// extents and distances alone. Sums over the rows instead, such as the gradient of a bias, are made
// on the way, where nothing waits for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "primitives/statements/bound_statement.h"
#include "primitives/statements/statement_pass.h"

namespace dlprim {

// One of them; arrays have the same number where they are the same.
struct FusedStatement {
    BoundStatement it = {};
    std::vector<std::size_t> operands = {};
    std::size_t result = 0;
    bool is_stored = true;  // else nothing but these statements reads it
};

class FusedRows {
public:
    // What an operand of the program is: one of a statement's, or its result.
    struct Access {
        static constexpr std::size_t kResult = ~std::size_t{0};

        std::size_t statement = 0;
        std::size_t operand = kResult;
    };
    // Part of an operand that is zero before the first row.
    struct Zeroed {
        std::size_t operand = 0;
        std::int64_t offset = 0;
        std::int64_t bytes = 0;
    };

    // Whether they are such a program, and it is expected to take no longer than a program for each
    // of them.
    static bool fit(const std::vector<FusedStatement>& statements);
    // Throws std::invalid_argument where they do not fit.
    explicit FusedRows(const std::vector<FusedStatement>& statements);

    const std::vector<Access>& accesses() const { return accesses_; }
    // First elements of their arrays. The same bits for any number of threads.
    void run(std::span<const void* const> arrays) const;
    std::string described() const;

private:
    std::vector<Access> accesses_;
    std::vector<Zeroed> zeroed_;
    std::optional<StatementPass> pass_ = {};
};

}  // namespace dlprim
