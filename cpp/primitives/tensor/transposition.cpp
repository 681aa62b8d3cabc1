#include "primitives/tensor/transposition.h"

#include <algorithm>

#include "jit/isa.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/transpose_halves.h"
#include "primitives/tensor/transpose_three.h"

namespace dlprim {
namespace {

// Long rows are read a few at a time and to their end, as many streams as hardware prefetches.
constexpr std::int64_t kRows = 16;

void transpose_words(const Transposition& matrix) {
    const PackFunction transpose = transpose_function(usable_isa());
    const Packing packing{.k = matrix.columns,
                          .n = matrix.rows,
                          .transposed = true,
                          .src = matrix.src,
                          .ld_src = matrix.ld_src,
                          .dst = matrix.dst,
                          .ld_dst = matrix.ld_dst};
    const bool long_rows = matrix.rows < matrix.columns;
    const std::int64_t parts = long_rows ? std::max<std::int64_t>(matrix.rows / kRows, 1) : 1;
    for (std::int64_t i = 0; i < parts; ++i) {  // the remainder belongs to the last one
        transpose(packing, {i * kRows, i + 1 == parts ? matrix.rows : (i + 1) * kRows});
    }
}

}  // namespace

void transpose(DType dtype, const Transposition& matrix) {
    if (matrix.rows == 3 && matrix.ld_dst == 3) {
        three_functions(usable_isa(), dtype).join(matrix);
    } else if (matrix.columns == 3 && matrix.ld_src == 3) {
        three_functions(usable_isa(), dtype).split(matrix);
    } else if (dtype == DType::f32) {
        transpose_words(matrix);
    } else {
        half_functions(usable_isa()).transpose(matrix);
    }
}

void transpose_packed(DType dtype, const Transposition& matrix) {
    if (dtype == DType::f32) {
        transpose_words(matrix);
    } else {
        half_functions(usable_isa()).transpose_packed(matrix);
    }
}

}  // namespace dlprim
