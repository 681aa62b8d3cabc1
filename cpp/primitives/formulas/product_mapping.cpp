#include "primitives/formulas/product_mapping.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "primitives/tensor/channel_blocks.h"

namespace dlprim {
namespace {

// Rows up to which B is read in place at full speed, and of a B that comes from memory then: rows
// and columns of a call, and the order, in which as many rows of B stream side by side as the
// hardware follows.
constexpr std::int64_t kFewRows = 192;
constexpr std::int64_t kStreamedRows = 16;
constexpr std::int64_t kStreamedColumns = 256;
constexpr double kStreamedPartOfL2 = 0.5;
// Of a sum, that one call goes through at most.
constexpr std::int64_t kLongestDepth = 256;
constexpr std::int64_t kLongestTransposedDepth = 128;
// Loops of one product, of which the cost model tries every order, and parts of a sum that one call
// gathers. Packed operands merge what exceeds them.
constexpr int kMostLoopsOfOne = 5;
constexpr std::int64_t kMostEntries = 1 << 16;

// Cycles of packing an operand, and of each of its bytes, of a call, and how much longer arithmetic
// takes on a B whose rows are far apart, where it is used again and again, and on a transposed A
// that comes from memory (2560 x 2560 x 128: 51 ms in place, 14 ms as the transposed product).
constexpr double kPacking = 800;
constexpr double kPackedByte = 0.3;
constexpr double kProductCall = 60;
constexpr double kFarRows = 1.15;
constexpr double kFarColumns = 2.5;
constexpr std::int64_t kFarApart = 4096;  // bytes: every row on a page of its own
// Rows of a call on a B that streams.
constexpr std::int64_t kStreamingRows = 40;

using Indices = std::vector<ProductIndex>;
using Stride = std::int64_t ProductIndex::*;

// Indices of an operand, the farthest first.
struct OperandOrder {
    Stride stride;
    std::vector<Indices*> classes;
};

double count(const Indices& indices) { return static_cast<double>(extent_of(indices)); }

LayoutDimension dimension_of(const ProductIndex& index, std::int64_t stride) {
    return {index.letter, index.extent, {{index.extent, stride}}};
}

// Index among `indices` that the operand moves along by one element.
const ProductIndex* neighbours(const Indices& indices, Stride stride, std::int64_t distance = 1) {
    const auto found = std::find_if(indices.begin(), indices.end(),
                                    [&](const ProductIndex& it) { return it.*stride == distance; });
    return found == indices.end() ? nullptr : &*found;
}

const ProductIndex* longest(const Indices& indices) {
    const auto found = std::max_element(indices.begin(), indices.end(),
                                        [](const ProductIndex& left, const ProductIndex& right) {
                                            return left.extent < right.extent;
                                        });
    return found == indices.end() ? nullptr : &*found;
}

class Mapper {
public:
    Mapper(const StridedProduct& product, const ProductWay& way, const Machine& machine)
        : way_(way), machine_(machine) {
        it_ = way.exchanges ? exchanged(product) : product;
        word_ = elements_per_word(it_.dtype);
        for (Indices* indices : {&it_.outer, &it_.rows, &it_.columns, &it_.sums}) {
            *indices = merged(std::move(*indices));
        }
        if (way.packs_a) put_depth_last();
        if (way.packs_a) pack(made_.a, {&ProductIndex::a, {&it_.outer, &it_.rows, &it_.sums}});
        if (way.packs_c) pack(made_.c, {&ProductIndex::c, {&it_.outer, &it_.rows, &it_.columns}});
        if (way.packs_b) pack_b();
        for (Indices* indices : {&it_.outer, &it_.rows, &it_.columns, &it_.sums}) {
            *indices = merged(std::move(*indices));
        }
        is_possible_ = choose();
    }

    bool is_possible() const { return is_possible_; }

    double cycles() const {
        const double lanes = machine_.lanes;
        const auto rows = static_cast<double>(m_.extent);
        const auto columns = static_cast<double>(std::min(column_unit_, n_.extent));
        const double vectors = std::ceil(columns / lanes);
        const double products = it_.flops() / 2;
        const double per_step = std::max(rows * vectors / machine_.fmas_per_cycle,
                                         (rows + vectors) / machine_.loads_per_cycle);
        const bool far = !way_.packs_b && extent_of(it_.rows) > kFewRows;
        const double bytes_a =
            count(it_.rows) * count(it_.sums) * static_cast<double>(size_of(it_.dtype));
        const bool far_columns = transposes_ && bytes_a > kStreamedPartOfL2 * machine_.l2 &&
                                 extent_of(it_.rows) * size_of(it_.dtype) > kFarApart;
        const double waits = (far ? kFarRows : 1) * (far_columns ? kFarColumns : 1);
        const double steps = products / (rows * columns);
        const double sum = count(it_.sums);
        const auto packing = [](const std::optional<PackedOperand>& operand) {
            if (!operand) return 0.0;
            return kPacking + kPackedByte * static_cast<double>(operand->packed.bytes());
        };
        const double packed =
            packing(made_.a) / it_.uses_a + packing(made_.b) / it_.uses_b + packing(made_.c);
        return steps * per_step * waits + steps / sum * (kProductCall + 2 * rows * vectors) +
               packed;
    }

    ProductMapping mapping() {
        made_.product = it_;
        describe();
        return std::move(made_);
    }

private:
    // The longest sum, which the kernel goes along once A is packed; where B is not, of those whose
    // rows of B do not overlap.
    void put_depth_last() {
        const ProductIndex* const n = neighbours(it_.columns, &ProductIndex::c);
        const std::int64_t columns = n == nullptr ? 1 : n->extent;
        std::stable_sort(it_.sums.begin(), it_.sums.end(),
                         [&](const ProductIndex& left, const ProductIndex& right) {
                             const auto depth = [&](const ProductIndex& it) {
                                 return way_.packs_b || it.b >= columns ? it.extent : 0;
                             };
                             return depth(left) < depth(right);
                         });
    }

    // Densely, in the order of the classes.
    void pack(std::optional<PackedOperand>& packed, const OperandOrder& order) const {
        // Sums of integers are moved as words.
        const DType sums = it_.c_type == DType::s32 ? DType::f32 : it_.c_type;
        packed = PackedOperand{{order.stride == &ProductIndex::c ? sums : it_.dtype, {}}, {}};
        packed->packed.dtype = packed->plain.dtype;
        std::int64_t stride = 1;
        for (auto among = order.classes.rbegin(); among != order.classes.rend(); ++among) {
            for (auto index = (*among)->rbegin(); index != (*among)->rend(); ++index) {
                packed->plain.dimensions.push_back(dimension_of(*index, (*index).*(order.stride)));
                packed->packed.dimensions.push_back(dimension_of(*index, stride));
                (*index).*(order.stride) = stride;
                stride *= index->extent;
            }
        }
    }

    // [outer][blocks of columns][sums / word][columns of the block][word], or all columns in one
    // block where they are several indices.
    void pack_b() {
        made_.b = PackedOperand{{it_.b_type, {}}, {it_.b_type, {}}};
        const auto add = [&](const ProductIndex& index, LayoutDimension packed) {
            made_.b->plain.dimensions.push_back(dimension_of(index, index.b));
            made_.b->packed.dimensions.push_back(std::move(packed));
        };
        std::int64_t stride = word_;
        const bool blocks = it_.columns.size() == 1;
        block_ = blocks ? linear_blocks(it_.columns.front().extent).block : 0;
        for (auto index = it_.columns.rbegin(); !blocks && index != it_.columns.rend(); ++index) {
            add(*index, dimension_of(*index, stride));
            index->b = stride;
            stride *= index->extent;
        }
        if (blocks) stride *= block_;
        const std::int64_t row = stride;
        for (auto index = it_.sums.rbegin(); index != it_.sums.rend(); ++index) {
            const bool is_depth = index == it_.sums.rbegin();
            LayoutDimension packed = dimension_of(*index, stride);
            if (is_depth && word_ > 1) {
                packed.levels = {{(index->extent + word_ - 1) / word_, stride}, {word_, 1}};
            }
            add(*index, packed);
            index->b = is_depth ? row / word_ : stride;
            stride *= is_depth ? (index->extent + word_ - 1) / word_ : index->extent;
        }
        if (blocks) {
            ProductIndex& columns = it_.columns.front();
            const std::int64_t count = Blocks{columns.extent, block_}.count();
            LayoutDimension packed = dimension_of(columns, word_);
            packed.levels = {{count, stride}, {block_, word_}};
            add(columns, packed);
            columns.b = word_;
            block_stride_ = stride;
            stride *= count;
        }
        for (auto index = it_.outer.rbegin(); index != it_.outer.rend(); ++index) {
            add(*index, dimension_of(*index, stride));
            index->b = stride;
            stride *= index->extent;
        }
    }

    // m, n and k. False where the kernel cannot go along any.
    bool choose() {
        if (it_.sums.empty() || (word_ > 1 && !way_.packs_b)) return false;
        if (!it_.columns.empty()) {
            const ProductIndex* const n = neighbours(it_.columns, &ProductIndex::c);
            if (n == nullptr || n->b != word_) return false;
            n_ = *n;
        }
        const ProductIndex* k = neighbours(it_.sums, &ProductIndex::a);
        const ProductIndex* m = longest(it_.rows);
        if (k == nullptr) {
            if (word_ > 1) return false;
            m = neighbours(it_.rows, &ProductIndex::a);
            if (m == nullptr && !it_.rows.empty()) return false;
            k = longest(it_.sums);
            transposes_ = true;
        }
        // Words hold neighbours of the last sum.
        if (word_ > 1 && k != &it_.sums.back()) return false;
        k_ = *k;
        if (m != nullptr) m_ = *m;
        if (!has_rows_apart() || !has_few_indices()) return false;
        set_units();
        return true;
    }

    bool has_few_indices() const {
        const auto beside = [](const Indices& indices) {
            return static_cast<int>(indices.size()) - (indices.empty() ? 0 : 1);
        };
        const int loops = 3 + beside(it_.rows) + beside(it_.columns);
        return loops <= kMostLoopsOfOne &&
               loops + static_cast<int>(it_.outer.size()) <= LoopNest::kMostLoops &&
               extent_of(it_.sums) / k_.extent <= kMostEntries;
    }

    // Rows of B and of C lie behind each other, and so do those of A, which may overlap.
    bool has_rows_apart() const {
        const std::int64_t columns = n_.extent;
        const bool a = transposes_ ? k_.a >= m_.extent : m_.a > 0 || m_.extent == 1;
        const bool c = m_.c >= columns || m_.extent == 1;
        const bool b = k_.b * word_ >= columns || block_stride_ > 0 || k_.extent == 1;
        return a && b && c && k_.b > 0;
    }

    void set_units() {
        column_unit_ = block_ > 0 ? block_ : linear_blocks(n_.extent).block;
        depth_unit_ =
            equal_step(k_.extent, transposes_ ? kLongestTransposedDepth : kLongestDepth, word_);
        const double bytes_b = static_cast<double>(k_.extent) * static_cast<double>(n_.extent) *
                               static_cast<double>(size_of(it_.dtype));
        if (!way_.packs_b && extent_of(it_.rows) <= kFewRows && it_.sums.size() == 1 &&
            bytes_b > kStreamedPartOfL2 * machine_.l2) {
            column_unit_ = std::min(n_.extent, kStreamedColumns);
            depth_unit_ = std::min(k_.extent, kStreamedRows);
            streams_ = true;
        }
    }

    ContractionLoop loop_along(const ProductIndex& index, std::int64_t unit = 1) const {
        const std::int64_t element = size_of(it_.dtype);
        return {.letter = index.letter,
                .extent = Blocks{index.extent, unit}.count(),
                .a = index.a * unit * element,
                .b = index.b * unit * element,
                .c = index.c * unit * size_of(it_.c_type)};
    }

    Dimension add_loop(const ProductIndex& index, std::int64_t unit) {
        Contraction& made = made_.contraction;
        made.loops.push_back(loop_along(index, unit));
        return {.loop = static_cast<int>(made.loops.size()) - 1,
                .unit = std::min(unit, index.extent),
                .total = index.extent};
    }

    void describe() {
        Contraction& made = made_.contraction;
        made.dtype = it_.dtype;
        made.b_type = it_.b_type;
        made.c_type = it_.c_type;
        made.rows = add_loop(m_, 1);
        made.columns = add_loop(n_, column_unit_);
        if (block_stride_ > 0) made.loops.back().b = block_stride_ * size_of(it_.dtype);
        made.batch = add_loop(k_, depth_unit_);
        made.loops.back().sum = true;
        for (const Indices* indices : {&it_.rows, &it_.columns}) {
            for (const ProductIndex& index : *indices) {
                if (index.letter != m_.letter && index.letter != n_.letter) add_loop(index, 1);
            }
        }
        made_.outer_loops = static_cast<int>(it_.outer.size());
        for (const ProductIndex& index : it_.outer) add_loop(index, 1);
        made.trans_a = transposes_;
        made.ldb = k_.b;
        made.ldc = std::max(m_.c, n_.extent);
        made.sliding_a = !transposes_ && m_.a < k_.extent;
        made.accumulates = it_.accumulates;
        if (it_.scale != 1) made.epilogue.scale = Scale::tensor;
        made.selections = {{}};
        made.classes = {{term()}};
        if (streams_) made_.schedule = streamed();
        weigh();
    }

    // B as it lies in memory, all else outside.
    Schedule streamed() const {
        Schedule made;
        for (const Indices* indices : {&it_.outer, &it_.rows, &it_.columns}) {
            for (const ProductIndex& index : *indices) {
                if (index.letter == m_.letter || index.letter == n_.letter) continue;
                made.levels.push_back({index.letter, 1, true});
            }
        }
        made.levels.push_back({k_.letter, 2, false});
        made.levels.push_back({n_.letter, 1, true});
        made.levels.push_back({m_.letter, equal_step(m_.extent, kStreamingRows, 1), true});
        return made;
    }

    // An entry for every value of the sums that are not the kernel's.
    Term term() const {
        Term made{.lda = transposes_ ? k_.a : m_.a,
                  .entries_a = {0},
                  .entries_b = {0},
                  .first = true,
                  .last = true};
        for (const ProductIndex& sum : it_.sums) {
            if (sum.letter == k_.letter) continue;
            const auto entries = made.entries_a.size();
            for (std::int64_t i = 1; i < sum.extent; ++i) {
                for (std::size_t entry = 0; entry < entries; ++entry) {
                    const std::int64_t element = size_of(it_.dtype);
                    made.entries_a.push_back(made.entries_a[entry] + i * sum.a * element);
                    made.entries_b.push_back(made.entries_b[entry] + i * sum.b * element);
                }
            }
        }
        return made;
    }

    // Of one of the products apart from each other.
    void weigh() {
        const auto element = static_cast<double>(size_of(it_.dtype));
        Contraction& made = made_.contraction;
        made.bytes_a = count(it_.rows) * count(it_.sums) * element;
        made.bytes_b = count(it_.columns) * count(it_.sums) * element;
        made.bytes_c =
            count(it_.rows) * count(it_.columns) * static_cast<double>(size_of(it_.c_type));
        made.flops = 2 * count(it_.rows) * count(it_.columns) * count(it_.sums);
    }

    ProductWay way_;
    const Machine& machine_;
    StridedProduct it_;
    ProductMapping made_;
    std::int64_t word_ = 1;
    std::int64_t block_ = 0;         // of columns in a packed B; 0: not cut
    std::int64_t block_stride_ = 0;  // elements from one block to the next
    ProductIndex m_ = {.letter = 'y'};
    ProductIndex n_ = {.letter = 'z', .c = 1};
    ProductIndex k_ = {};
    bool transposes_ = false;
    bool streams_ = false;
    std::int64_t column_unit_ = 1;
    std::int64_t depth_unit_ = 1;
    bool is_possible_ = false;
};

}  // namespace

std::vector<ProductWay> product_ways(const StridedProduct& product, const Machine& machine) {
    std::vector<ProductWay> ways;
    // What is rounded once is summed elsewhere, without what stood in C.
    if (product.accumulates && product.c_type == DType::bf16) return ways;
    if (product.c_type == DType::s32 && product.scale != 1) return ways;
    for (int bits = 0; bits < 16; ++bits) {
        ProductWay way{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0};
        if (way.packs_c && product.accumulates) continue;
        const Mapper mapper(product, way, machine);
        if (!mapper.is_possible()) continue;
        way.cycles = mapper.cycles();
        ways.push_back(way);
    }
    std::stable_sort(ways.begin(), ways.end(), [](const ProductWay& left, const ProductWay& right) {
        return left.cycles < right.cycles;
    });
    return ways;
}

ProductMapping mapping_of(const StridedProduct& product, const ProductWay& way,
                          const Machine& machine) {
    return Mapper(product, way, machine).mapping();
}

}  // namespace dlprim
