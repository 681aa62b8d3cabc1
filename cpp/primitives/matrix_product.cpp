#include "primitives/matrix_product.h"

#include <algorithm>
#include <memory>
#include <vector>

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

// How a product is cut. Only the last block of a dimension differs from the first in size.
struct Cut {
    explicit Cut(const MatrixProduct& product)
        : rows{product.m, kBlockRows},
          columns{product.n, kPanelColumns},
          depths{product.k, kBlockDepth} {}

    // Kernel calls per block of C; an empty sum takes one.
    std::int64_t calls() const { return std::max<std::int64_t>(depths.count(), 1); }

    Blocks rows;
    Blocks columns;
    Blocks depths;
};

// The kernels of all blocks, looked up once for the product instead of once for every block.
class BlockKernels {
public:
    BlockKernels(const MatrixProduct& product, const Cut& cut) : cut_(cut) {
        for (const std::int64_t row : {std::int64_t{0}, cut.rows.count() - 1}) {
            for (const std::int64_t column : {std::int64_t{0}, cut.columns.count() - 1}) {
                for (std::int64_t depth = 0; depth < cut.calls(); ++depth) {
                    kernels_.push_back(brgemm(block_spec(
                        product, cut.rows.at(row), cut.columns.at(column), cut.depths.at(depth))));
                }
            }
        }
    }

    const Brgemm& at(std::int64_t row, std::int64_t column, std::int64_t depth) const {
        const std::int64_t last_row = row == cut_.rows.count() - 1 ? 1 : 0;
        const std::int64_t last_column = column == cut_.columns.count() - 1 ? 1 : 0;
        const std::int64_t index = (last_row * 2 + last_column) * cut_.calls() + depth;
        return *kernels_[static_cast<std::size_t>(index)];
    }

private:
    const Cut& cut_;
    std::vector<std::shared_ptr<const Brgemm>> kernels_;
};

void multiply_block(const MatrixProduct& product, const Cut& cut, const BlockKernels& kernels,
                    std::int64_t row, std::int64_t panel) {
    const Range rows = cut.rows.at(row);
    const Range columns = cut.columns.at(panel);
    for (std::int64_t i = 0; i < cut.calls(); ++i) {
        const Range depth = cut.depths.at(i);
        BrgemmArgs args{
            .c = product.c + rows.begin * product.ldc + columns.begin,
            .bias = product.bias == nullptr ? nullptr : product.bias + columns.begin,
        };
        if (depth.size() > 0) {  // else there may be no operands at all
            args.batch = 1;
            args.a = product.a + (product.trans_a ? depth.begin * product.lda + rows.begin
                                                  : rows.begin * product.lda + depth.begin);
            args.b = product.b + panel * product.b_panel_stride + depth.begin * product.ldb;
        }
        kernels.at(row, panel, i)(args);
    }
}

}  // namespace

void multiply(const MatrixProduct& product) {
    if (product.m == 0 || product.n == 0) return;
    const Cut cut(product);
    const BlockKernels kernels(product, cut);
    parallel_for(cut.rows.count() * cut.columns.count(), [&](std::int64_t task) {
        // Rows innermost: a thread's neighbouring tasks share a panel of B.
        const std::int64_t row = task % cut.rows.count();
        multiply_block(product, cut, kernels, row, task / cut.rows.count());
    });
}

}  // namespace dlprim
