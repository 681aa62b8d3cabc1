#include "primitives/mapping/copied_operand.h"

#include <algorithm>
#include <cstdlib>

#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// Cycles of packing an operand, of each of its bytes, fewer where the L2 cache holds it, of each
// row whose elements stay neighbours, of each tile that is transposed, and of each element where
// none has a neighbour in the array (results of 171 channels, every second pixel: 5 ms).
constexpr double kPacking = 800;
constexpr double kPackedByte = 0.3;
constexpr double kPackedByteOfHalf = 0.15;
constexpr double kPackedByteNear = 0.1;
constexpr double kHeldPartOfL2 = 0.5;
constexpr double kPackedRow = 10;
constexpr double kPackedTile = 50;
constexpr double kPackedAlone = 10;
constexpr std::int64_t kTileBytes = 64;  // of a row on either side

// Of a pass that reads and writes so many bytes as they lie.
double cycles_of_pass(double bytes, DType dtype, const Machine& machine) {
    const double far = dtype == DType::bf16 ? kPackedByteOfHalf : kPackedByte;
    return kPacking + bytes * (bytes <= kHeldPartOfL2 * machine.l2 ? kPackedByteNear : far);
}

}  // namespace

double cycles_of_end(const StridedProduct& product, const Machine& machine) {
    if (product.end.is_nothing()) return 0;
    const double elements =
        values_of(product.outer) * values_of(product.rows) * values_of(product.columns);
    const double bytes = elements * static_cast<double>(size_of(product.c_type));
    return cycles_of_pass(bytes, product.c_type, machine);
}

void CopiedOperand::add(const std::vector<ProductIndex>& plain,
                        const std::vector<ProductIndex>& packed) {
    for (std::size_t i = 0; i < plain.size(); ++i) {
        indices_.push_back({plain[i].extent, std::abs(plain[i].*stride_), packed[i].*stride_});
        elements_ *= static_cast<double>(plain[i].extent);
    }
}

// Rows stay rows where the neighbours do, else pieces are transposed: of the neighbours on
// both sides, and of what follows them on the side where they are fewer.
double CopiedOperand::cycles(const Machine& machine) const {
    const double bytes = elements_ * static_cast<double>(size_of(dtype_));
    const Index inner = *nearest(&Index::to), outer = *nearest(&Index::from);
    double pieces = 0;
    if (outer.from > 1) {
        pieces = kPackedAlone * elements_;
    } else if (inner.from == outer.from) {
        pieces = kPackedRow * elements_ / static_cast<double>(inner.extent);
    } else {
        const bool is_inner_short = inner.extent < outer.extent;
        const auto distance = is_inner_short ? &Index::to : &Index::from;
        const Index& fewer = is_inner_short ? inner : outer;
        const auto next = std::find_if(indices_.begin(), indices_.end(), [&](const Index& it) {
            return it.*distance == fewer.extent * fewer.*distance && it.to != inner.to &&
                   it.from != outer.from;
        });
        const std::int64_t more = next == indices_.end() ? 1 : next->extent;
        const std::int64_t many = std::max(inner.extent, outer.extent), few = fewer.extent * more;
        const std::int64_t tile = kTileBytes / size_of(dtype_);
        const auto tiles =
            static_cast<double>(Blocks{many, tile}.count() * Blocks{few, tile}.count());
        pieces = kPackedTile * tiles * elements_ / static_cast<double>(many * few);
    }
    return cycles_of_pass(bytes, dtype_, machine) + pieces;
}

const CopiedOperand::Index* CopiedOperand::nearest(std::int64_t Index::* distance) const {
    return &*std::min_element(
        indices_.begin(), indices_.end(),
        [&](const Index& left, const Index& right) { return left.*distance < right.*distance; });
}

}  // namespace dlprim
