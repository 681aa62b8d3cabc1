#include "primitives/programs/reduction_programs.h"

#include <limits>

namespace dlprim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Choice = RowValue (*)(RowValue);
using Pair = RowValue (*)(RowValue, RowValue);

// Extremes pass NaN over, so it is looked for beside them.
void of_rows(RowBuilder& row, DType dtype, Choice extreme) {
    const RowValue x = row.tensor(dtype);
    const RowValue holds_nan = highest(select(is_nan(x), 1.0F, 0.0F));
    row.store_per_row(select(0.0F < holds_nan, kNan, extreme(x)));
}

// A pair is its second where one of the two is NaN.
void of_tensors(RowBuilder& row, DType dtype, Pair extreme) {
    RowValue found = row.tensor(dtype);
    for (int i = 1; i < kFoldedTensors; ++i) {
        const RowValue x = row.tensor(dtype);
        found = select(is_nan(found), found, extreme(found, x));
    }
    row.store(dtype, found);
}

// Places of NaN lie below all others.
void place_of(RowBuilder& row, DType dtype, Choice extreme) {
    const RowValue x = row.tensor(dtype), place = row.column();
    const RowValue of_extreme = select(x == extreme(x), place, kInfinity);
    const RowValue first = lowest(select(is_nan(x), place - kMostPlaces, of_extreme));
    row.store_per_row(select(first < 0.0F, first + kMostPlaces, first));
}

}  // namespace

void write_sum_of_rows(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    row.store_per_row(sum(x));
}

void write_sum_of_columns(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    row.add_to_column(x);
}

void write_max_of_rows(RowBuilder& row, DType dtype) { of_rows(row, dtype, highest); }
void write_min_of_rows(RowBuilder& row, DType dtype) { of_rows(row, dtype, lowest); }
void write_max_of_tensors(RowBuilder& row, DType dtype) { of_tensors(row, dtype, larger); }
void write_min_of_tensors(RowBuilder& row, DType dtype) { of_tensors(row, dtype, smaller); }
void write_place_of_max(RowBuilder& row, DType dtype) { place_of(row, dtype, highest); }
void write_place_of_min(RowBuilder& row, DType dtype) { place_of(row, dtype, lowest); }

}  // namespace dlprim
