// Sums and extremes of rows, of columns, and of tensors element by element. A NaN makes an extreme
// NaN; where it lies is the place of one.
#include <limits>

#include "primitives/programs/row_programs.h"

namespace dlprim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// How many tensors a fold makes one of.
constexpr int kFoldedTensors = 8;

// Rows for which places are exact, in columns.
constexpr float kMostPlaces = 0x1p23F;

using Choice = RowValue (*)(RowValue);
using Pair = RowValue (*)(RowValue, RowValue);

// x; per row its largest or smallest element. These pass NaN over, so it is looked for beside them.
template <Choice extreme>
void of_rows(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    const RowValue holds_nan = highest(select(is_nan(x), 1.0F, 0.0F));
    row.store_per_row(select(0.0F < holds_nan, kNan, extreme(x)));
}

// kFoldedTensors of them; the largest or smallest in each place. A pair is its second where one of
// the two is NaN.
template <Pair extreme>
void of_tensors(RowBuilder& row, DType dtype) {
    RowValue found = row.tensor(dtype);
    for (int i = 1; i < kFoldedTensors; ++i) {
        const RowValue x = row.tensor(dtype);
        found = select(is_nan(found), found, extreme(found, x));
    }
    row.store(dtype, found);
}

// x, a column that counts up from 0; per row the place of the first such element. Places of NaN
// lie below all others.
template <Choice extreme>
void place_of(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype), place = row.column();
    const RowValue of_extreme = select(x == extreme(x), place, kInfinity);
    const RowValue first = lowest(select(is_nan(x), place - kMostPlaces, of_extreme));
    row.store_per_row(select(first < 0.0F, first + kMostPlaces, first));
}

// x; per row its sum.
void sum_of_rows(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    row.store_per_row(sum(x));
}

// x; sums of columns.
void sum_of_columns(RowBuilder& row, DType dtype) {
    const RowValue x = row.tensor(dtype);
    row.add_to_column(x);
}

}  // namespace

RowFamily reduction_programs() {
    return {{"sum_of_rows", sum_of_rows},           {"sum_of_columns", sum_of_columns},
            {"max_of_rows", of_rows<highest>},      {"min_of_rows", of_rows<lowest>},
            {"max_of_tensors", of_tensors<larger>}, {"min_of_tensors", of_tensors<smaller>},
            {"place_of_max", place_of<highest>},    {"place_of_min", place_of<lowest>}};
}

}  // namespace dlprim
