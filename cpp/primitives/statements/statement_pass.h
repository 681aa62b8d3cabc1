// One program of the row engine over a statement whose operands lie as the engine wants them: along
// one index, the columns, elements are neighbours or the same. Another index counts rows, some
// short ones that are reduced are written out in the program, and the rest is walked around it, in
// tasks that do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "primitives/statements/bound_statement.h"
#include "primitives/tensor/partition.h"
#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {

// Where the columns are reduced, and where nothing is but what is written out, and where rows are.
enum class RowWalk : std::uint8_t { along_rows, map, down_columns };

struct PassRoles {
    static constexpr std::size_t kNone = ~std::size_t{0};

    RowWalk kind = RowWalk::map;
    std::size_t column = 0;  // of BoundStatement::indices
    std::size_t row = kNone;
    std::vector<std::size_t> unrolled = {};
    bool keeps_sums = false;     // down columns, in registers through all rows
    bool leaves_caches = false;  // the result, where it begins on a cache line
};

// An operand of a program that is read.
RowValue named(RowBuilder& row, const BoundOperand& of, const PassRoles& roles, bool sums_columns);

class StatementPass {
public:
    // The result is float32 where something is reduced but what is written out, and its elements
    // are neighbours along columns that are not reduced. Single values of rows are float32.
    // `statement` reads operands alone, by their numbers.
    StatementPass(const BoundStatement& statement, const PassRoles& roles);
    // Of a program of somebody else's, which has the operands of `accesses` in their order, read or
    // written; nothing is summed in columns.
    StatementPass(const RowSpec& program, const BoundStatement& accesses, const PassRoles& roles);

    // First elements of the arrays; of somebody else's program there is no result.
    void run(const std::vector<char*>& operands, char* result) const;
    std::string described() const;

private:
    // An operand of the program; distances in bytes.
    struct Slot {
        std::size_t operand = 0;
        bool is_result = false;
        std::int64_t offset = 0;
        std::int64_t row = 0;
        std::int64_t column = 0;
    };
    // An index that is walked, with the distance of each slot.
    struct Loop {
        std::int64_t extent = 1;
        std::vector<std::int64_t> steps = {};
    };

    class Program;
    class Runner;

    void walk(const BoundStatement& statement, const PassRoles& roles,
              const std::vector<const BoundOperand*>& named);
    void add_loops(const BoundStatement& statement, const PassRoles& roles,
                   const std::vector<const BoundOperand*>& named);
    void move(RowArgs& args, const std::vector<Loop>& loops, std::int64_t index) const;
    void run_outside(const RowArgs& args) const;
    const RowKernel& kernel_for(const RowArgs& args) const;
    void run_columns(const RowArgs& args) const;
    void run_strip(const Runner& runner, RowArgs strip, Range columns) const;

    std::shared_ptr<const RowKernel> kernel_;
    std::shared_ptr<const RowKernel> around_caches_;  // the same, or null
    RowWalk kind_;
    std::int64_t rows_ = 1;
    std::int64_t columns_ = 1;
    bool fills_ = false;  // the result is what nothing gives, before the first row
    float nothing_ = 0;
    std::vector<Slot> slots_ = {};
    std::vector<Loop> outer_ = {};
    std::vector<Loop> inner_ = {};  // reduced, within a task
    std::int64_t outer_count_ = 1;
    std::int64_t inner_count_ = 1;
    std::string described_ = {};
};

}  // namespace dlprim
