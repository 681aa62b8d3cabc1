// Row programs on threads. Where nothing ties elements to their rows, all elements are cut into
// tasks; else rows are. Tasks do not depend on the number of threads, and sums over rows are made
// in fixed parts that are added in order, so that results are the same bits for any number.
#pragma once

#include "rows/row_kernel.h"

namespace dlprim {

// Runs `kernel` on all rows; `args.scratch` is not looked at. Rows of elements that are next to
// each other must be so in every tensor where columns of sums are among the operands. Throws
// std::invalid_argument where rows are listed: their kernel runs on the thread that calls it.
void run_rows(const RowKernel& kernel, const RowArgs& args);

// Of the elements of all rows.
double row_operations(const RowKernel& kernel, const RowArgs& args);

// Whether of tensors of so many bytes nothing is found in the caches when it is read again.
bool exceeds_caches(double bytes);

}  // namespace dlprim
