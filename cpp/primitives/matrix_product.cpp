#include "primitives/matrix_product.h"

#include <algorithm>

#include "brgemm/brgemm.h"
#include "primitives/parallel.h"
#include "primitives/partition.h"

namespace dlprim {
namespace {

// A block of A and a panel of B, 256 KiB each at these sizes, stay in the L2 cache together.
constexpr std::int64_t kBlockRows = 64;
constexpr std::int64_t kBlockDepth = 1024;

// The part of the sum over k that one kernel call does.
BrgemmSpec block_spec(const MatrixProduct& product, Range rows, Range columns, Range depth) {
    const bool last = depth.end == product.k;
    return {
        .m = rows.size(),
        .n = columns.size(),
        .k = std::max<std::int64_t>(depth.size(), 1),
        .lda = product.lda,
        .ldb = product.ldb,
        .ldc = product.ldc,
        .trans_a = product.trans_a,
        .beta = depth.begin == 0 ? 0 : 1,
        .epilogue = {.bias = last && product.bias != nullptr,
                     .activation = last ? product.activation : Activation::none},
    };
}

void multiply_block(const MatrixProduct& product, Range rows, std::int64_t panel, Range columns) {
    const Blocks depths{product.k, kBlockDepth};
    const float* b = product.b + panel * product.b_panel_stride;
    const std::int64_t calls = std::max<std::int64_t>(depths.count(), 1);
    for (std::int64_t i = 0; i < calls; ++i) {
        const Range depth = depths.at(i);
        const auto kernel = brgemm(block_spec(product, rows, columns, depth));
        const std::int64_t a_offset = product.trans_a ? depth.begin * product.lda + rows.begin
                                                      : rows.begin * product.lda + depth.begin;
        (*kernel)({
            .a = product.a + a_offset,
            .b = b + depth.begin * product.ldb,
            .c = product.c + rows.begin * product.ldc + columns.begin,
            .batch = depth.size() > 0 ? 1 : 0,
            .bias = product.bias == nullptr ? nullptr : product.bias + columns.begin,
        });
    }
}

}  // namespace

void multiply(const MatrixProduct& product) {
    const Blocks rows{product.m, kBlockRows};
    const Blocks columns{product.n, kPanelColumns};
    parallel_for(rows.count() * columns.count(), [&](std::int64_t task) {
        // Rows innermost: a thread's neighbouring tasks share a panel of B.
        const std::int64_t panel = task / rows.count();
        multiply_block(product, rows.at(task % rows.count()), panel, columns.at(panel));
    });
}

}  // namespace dlprim
