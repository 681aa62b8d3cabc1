// A statement that copies, or adds up, what stands at places that are read: for every place the
// rest of what is read there, which is long where a table has long rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "primitives/formulas/gathered_place.h"
#include "primitives/statements/bound_statement.h"
#include "primitives/tensor/partition.h"
#include "rows/row_kernel.h"

namespace dlprim {

class Gather {
public:
    // Operand 0 is the source without the places that are read, then one operand of int32 for each
    // of these. Outside the source is 0. Indices that are reduced are those of places alone.
    Gather(const BoundStatement& statement, std::vector<GatheredPlace> places);

    using Operands = std::span<const void* const>;
    // First elements of the arrays. The same for any number of threads.
    void run(Operands operands, void* result) const;
    std::string described() const;

private:
    struct Loop {
        std::int64_t extent = 1;
        std::vector<std::int64_t> steps = {};  // elements: result, source, places
    };
    // What one value of the places asks for; elements.
    struct Row {
        std::int64_t to = 0;
        std::int64_t from = 0;
        bool is_inside = true;
    };
    class Walk;

    std::optional<std::int64_t> result_step() const;
    std::int32_t place_bytes() const { return places_.front().is_wide ? 8 : 4; }

    static constexpr std::size_t kMostGathered = 8;
    static constexpr std::size_t kRowsAhead = 2;

    void copy_rows(Operands operands, char* result, Range range) const;
    void sum_rows(Operands operands, char* result, Range range) const;
    void sum_dense(Operands operands, char* result, Range range) const;
    void ask_for(const char* source, const Row& row) const;
    // What is inside of a loop; a copy from null is zeros.
    void copy(const char* source, char* result, std::size_t loop) const;
    void sum(RowArgs& args, std::size_t loop) const;

    BoundStatement statement_;
    std::vector<GatheredPlace> places_;
    std::vector<Loop> around_;  // that a place moves along, those that are summed last
    std::size_t outer_ = 0;     // of these, in front of those
    std::vector<Loop> inside_;
    std::shared_ptr<const RowKernel> kernel_;  // null: nothing is summed, and types are the same
    std::int64_t count_ = 1;                   // of results with their insides
    std::int64_t summed_ = 1;                  // of rows that each is the sum of
    std::int64_t bytes_ = 4;                   // of an element of the source
    std::int64_t row_ = 1;                     // elements inside that lie side by side
    // Elements between results whose places lie one after the other, all of them inside and all
    // that moves along the source: the program reads these itself then.
    std::optional<std::int64_t> result_step_ = {};
    bool is_large_ = false;  // the source: the L2 cache does not hold it
};

}  // namespace dlprim
