// Sums of rows that a list names, each with a weight: a few of them for every result.
#pragma once

#include <cstdint>

#include "rows/row_args.h"

namespace dlprim {

// Begins so many elements from `rows`, and its weight is `number`.
using ListedRow = RowArgs::Listed;

struct ListedSums {
    const float* rows = nullptr;
    std::int64_t columns = 0;
    const ListedRow* list = nullptr;       // of one result after the other
    const std::int64_t* counts = nullptr;  // how many of them are for each result
    std::int64_t results = 0;
    float* dst = nullptr;  // results, columns
};

// On the thread that calls it.
void sum_listed(const ListedSums& it);

}  // namespace dlprim
