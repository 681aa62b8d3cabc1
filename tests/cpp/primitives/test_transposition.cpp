#include <cstdint>

#include <doctest/doctest.h>

#include "guarded_elements.h"
#include "primitives/tensor/transposition.h"

namespace dlprim {
namespace {

using testing::differences;
using testing::Elements;
using testing::Fence;

constexpr std::int64_t kLengths[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,  15, 16, 17,
                                     24, 31, 32, 33, 47, 48, 63, 64, 65, 96, 131};

// A matrix of `rows` groups of `group` neighbours, `ld` columns apart, that ends with its last
// element.
std::int64_t span(std::int64_t rows, std::int64_t ld, std::int64_t columns, std::int64_t group) {
    return rows == 0 ? 0 : (((rows + group - 1) / group - 1) * ld + columns) * group;
}

// Rows of src and dst are `gap` columns apart.
void check(DType dtype, std::int64_t rows, std::int64_t columns, bool packed, std::int64_t gap) {
    CAPTURE(name_of(dtype));
    CAPTURE(rows);
    CAPTURE(columns);
    CAPTURE(packed);
    CAPTURE(gap);
    const std::int64_t group = packed ? elements_per_word(dtype) : 1;
    Transposition matrix{
        .ld_src = columns + 3 * gap, .rows = rows, .columns = columns, .ld_dst = rows + gap};
    for (const Fence fence : {Fence::before, Fence::after}) {
        Elements src(span(rows, matrix.ld_src, columns, group), dtype, fence);
        Elements dst(span(columns, matrix.ld_dst, rows, group), dtype, fence);
        Elements expected(dst.count(), dtype, fence);
        src.number();
        for (std::int64_t row = 0; row < rows; ++row) {
            for (std::int64_t column = 0; column < (columns + group - 1) / group * group;
                 ++column) {
                const std::int64_t from =
                    (row / group * matrix.ld_src + column) * group + row % group;
                const std::int64_t to =
                    (column / group * matrix.ld_dst + row) * group + column % group;
                expected.set(to, column < columns ? src.at(from) : 0);
            }
        }
        matrix.src = src.data();
        matrix.dst = dst.data();
        (packed ? transpose_packed : transpose)(dtype, matrix);
        CHECK(differences(dst, expected) == 0);
    }
}

TEST_CASE("every type, form and size, between pages that fault") {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t rows : kLengths) {
            for (const std::int64_t columns : kLengths) {
                for (const bool packed : {false, true}) {
                    for (const std::int64_t gap : {0, 1}) check(dtype, rows, columns, packed, gap);
                }
            }
        }
    }
}

}  // namespace
}  // namespace dlprim
