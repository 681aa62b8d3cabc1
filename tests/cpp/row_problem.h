// A random row program with operands between pages that fault, run by a kernel and by the
// interpreter. Where no operation before it has an error of its own, a result must be the same
// bits; what exponentials and sums have touched may differ by some units in the last place, and
// programs are drawn so that nothing enlarges that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draw.h"
#include "guarded_elements.h"
#include "rows/row_kernel.h"

namespace dlprim::testing {

struct RowProgram {
    RowSpec spec;
    std::vector<bool> exact;  // of each operand: whether its results are the same bits
};

RowProgram draw_row_program(Draw& draw);

// Of code for vectors, those that this CPU has.
std::vector<Isa> generated_levels();

struct RowProblem {
    RowProblem(const RowProgram& drawn, Draw& draw);

    // Runs both; empty, or where they differ.
    std::string mismatch(const RowKernel& kernel);
    // The list as a program has it that wants places.
    Elements places() const;

    RowProgram program;
    std::int64_t rows;
    std::int64_t columns;
    Fence fence;
    std::int64_t listed_stride;
    std::vector<std::int64_t> strides;  // elements
    std::vector<RowArgs::Listed> list;
    std::vector<float> factors;
    std::vector<std::int64_t> counts;
    std::vector<Elements> actual;
    std::vector<Elements> expected;
};

}  // namespace dlprim::testing
