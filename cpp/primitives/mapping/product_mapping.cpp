#include "primitives/mapping/product_mapping.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace dlprim {
namespace {

// Rows of a call on a B that streams.
constexpr std::int64_t kStreamingRows = 40;

using Loops = std::vector<ProductIndex>;
using Stride = std::int64_t ProductIndex::*;

LayoutDimension dimension_of(const ProductIndex& index, std::int64_t stride) {
    return {index.letter, index.extent, {{index.extent, stride}}};
}

class Mapper {
public:
    Mapper(const ProductWalk& walk, const Machine& machine)
        : walk_(walk), packed_(walk.packed()), it_(walk.walked()), m_(walk.m()), n_(walk.n()) {
        lanes_ = static_cast<std::int64_t>(machine.vector_lanes());
    }

    ProductMapping mapping(const ProductWay& way) {
        columns_ = n_.extent;
        if (way.packs_b && way.packs_c) fill_vectors();
        if (way.packs_a) made_.a = packed_a();
        if (way.packs_b) made_.b = packed_b();
        if (way.packs_c) made_.c = packed_c();
        if (it_.end.bias && walk_.ends()) made_.bias = packed_bias();
        describe();
        return std::move(made_);
    }

private:
    // A class as it lies and as it is packed, from the innermost index on.
    template <typename Packed>
    static void add(PackedOperand& operand, const Loops& plain, Stride stride,
                    const Packed& packed) {
        for (std::size_t i = plain.size(); i-- > 0;) {
            operand.plain.dimensions.push_back(dimension_of(plain[i], plain[i].*stride));
            operand.packed.dimensions.push_back(packed(i));
        }
    }

    static void add(PackedOperand& operand, const Loops& plain, Stride stride,
                    const Loops& packed) {
        add(operand, plain, stride,
            [&](std::size_t i) { return dimension_of(packed[i], packed[i].*stride); });
    }

    // One block of matrices whose B and C are both copies: the kernel multiplies whole vectors, so
    // that products of many widths share kernels and no row of C ends within one.
    void fill_vectors() {
        const bool is_biased = it_.end.bias && walk_.ends();
        const bool is_plain = it_.dtype == DType::f32 && it_.c_type == DType::f32;
        const bool is_matrix = walk_.block() > 0 && packed_.columns.front().extent == n_.extent &&
                               packed_.sums.size() == 1 && packed_.outer.empty();
        if (!is_plain || !is_matrix || is_biased || it_.accumulates) return;
        // Few columns are packed more densely than in vectors.
        const std::int64_t whole = rounded_up(n_.extent, lanes_);
        const Blocks blocks{n_.extent, walk_.block()};
        if (whole > blocks.count() * walk_.block()) return;
        columns_ = whole;
        // Rows of C lie whole blocks apart, so that widths between share kernels, too.
        const std::int64_t apart = blocks.count() * walk_.block();
        const auto widen = [&](ProductIndex& row) { row.c = row.c / n_.extent * apart; };
        for (Loops* rows : {&packed_.rows, &it_.rows})
            std::for_each(rows->begin(), rows->end(), widen);
        widen(m_);
    }

    PackedOperand packed_a() const {
        PackedOperand made{{it_.dtype, {}}, {it_.dtype, {}}};
        const StridedProduct &plain = walk_.plain(), &packed = packed_;
        add(made, plain.sums, &ProductIndex::a, packed.sums);
        add(made, plain.rows, &ProductIndex::a, packed.rows);
        add(made, plain.outer, &ProductIndex::a, packed.outer);
        return made;
    }

    PackedOperand packed_c() const {
        // Sums of integers are moved as words.
        const DType type = it_.c_type == DType::s32 ? DType::f32 : it_.c_type;
        PackedOperand made{{type, {}}, {type, {}}};
        const StridedProduct &plain = walk_.plain(), &packed = packed_;
        add(made, plain.columns, &ProductIndex::c, packed.columns);
        add(made, plain.rows, &ProductIndex::c, packed.rows);
        add(made, plain.outer, &ProductIndex::c, packed.outer);
        if (columns_ > n_.extent) made.packed.dimensions.front().levels = {{columns_, 1}};
        return made;
    }

    PackedOperand packed_b() const {
        PackedOperand made{{it_.b_type, {}}, {it_.b_type, {}}};
        const StridedProduct &plain = walk_.plain(), &packed = packed_;
        const std::int64_t word = walk_.word(), block = walk_.block();
        add(made, plain.columns, &ProductIndex::b, [&](std::size_t i) {
            LayoutDimension columns = dimension_of(packed.columns[i], packed.columns[i].b);
            if (block > 0) {
                columns.levels = {{Blocks{columns.extent, block}.count(), walk_.block_stride()},
                                  {block, word}};
            }
            return columns;
        });
        add(made, plain.sums, &ProductIndex::b, [&](std::size_t i) {
            LayoutDimension sums = dimension_of(packed.sums[i], packed.sums[i].b);
            if (word > 1 && i + 1 == packed.sums.size()) {
                sums.levels = {{(sums.extent + word - 1) / word, packed.sums[i].b * word},
                               {word, 1}};
            }
            return sums;
        });
        add(made, plain.outer, &ProductIndex::b, packed.outer);
        if (columns_ > n_.extent) {
            const std::int64_t last = n_.extent / block;
            made.rim = {.first = last * walk_.block_stride() + n_.extent % block,
                        .rows = packed.sums.front().extent,
                        .row = block,
                        .columns = columns_ - n_.extent};
        }
        return made;
    }

    // Float32, side by side along the kernel's columns.
    std::optional<BoundStatement> packed_bias() {
        const bool in_place = it_.end.bias_type == DType::f32 && (n_.bias == 1 || n_.extent == 1);
        if (in_place) return {};
        BoundStatement copy{.result = {.dtype = DType::f32},
                            .operands = {{.dtype = it_.end.bias_type}},
                            .value = {.kind = Expression::Kind::read}};
        std::int64_t stride = 1;
        const auto add = [&](ProductIndex& index) {
            copy.indices.push_back({std::string(1, index.letter), index.extent});
            copy.operands[0].strides.push_back(index.bias);
            copy.result.strides.push_back(stride);
            index.bias = stride;
            stride *= index.extent;
        };
        for (ProductIndex& index : it_.columns) {
            if (index.letter == n_.letter) add(index);
        }
        for (Loops* indices : {&it_.columns, &it_.outer}) {
            for (ProductIndex& index : *indices) {
                if (index.letter != n_.letter && index.bias != 0) add(index);
            }
        }
        n_.bias = 1;
        return copy;
    }

    ContractionLoop loop_along(const ProductIndex& index, std::int64_t unit = 1) const {
        const std::int64_t element = size_of(it_.dtype);
        return {.letter = index.letter,
                .extent = Blocks{index.extent, unit}.count(),
                .a = index.a * unit * element,
                .b = index.b * unit * element,
                .c = index.c * unit * size_of(it_.c_type),
                .bias = index.bias * unit * size_of(DType::f32)};
    }

    Dimension add_loop(const ProductIndex& index, std::int64_t unit, std::int64_t total) {
        Contraction& made = made_.contraction;
        made.loops.push_back(loop_along(index, unit));
        return {.loop = static_cast<int>(made.loops.size()) - 1,
                .unit = std::min(unit, total),
                .total = total};
    }
    Dimension add_loop(const ProductIndex& index, std::int64_t unit) {
        return add_loop(index, unit, index.extent);
    }

    void describe() {
        const ProductIndex &m = m_, &n = n_, &k = walk_.k();
        Contraction& made = made_.contraction;
        made.dtype = it_.dtype;
        made.b_type = it_.b_type;
        made.c_type = it_.c_type;
        made.rows = add_loop(m, 1);
        made.columns = add_loop(n, walk_.column_unit(), columns_);
        if (walk_.block_stride() > 0) {
            made.loops.back().b = walk_.block_stride() * size_of(it_.dtype);
        }
        made.batch = add_loop(k, walk_.depth_unit());
        made.loops.back().sum = true;
        for (const Loops* indices : {&it_.rows, &it_.columns}) {
            for (const ProductIndex& index : *indices) {
                if (index.letter != m.letter && index.letter != n.letter) add_loop(index, 1);
            }
        }
        made_.outer_loops = static_cast<int>(it_.outer.size());
        for (const ProductIndex& index : it_.outer) add_loop(index, 1);
        made.trans_a = walk_.transposes();
        made.ldb = k.b;
        made.ldc = std::max(m.c, columns_);
        made.sliding_a = !walk_.transposes() && m.a < k.extent;
        made.accumulates = it_.accumulates;
        if (it_.scale != 1) made.epilogue.scale = Scale::tensor;
        if (walk_.ends()) {
            made.epilogue.bias = it_.end.bias;
            made.epilogue.activation = it_.end.activation;
        }
        made.selections = {{}};
        made.classes = {{term()}};
        if (walk_.streams()) made_.schedule = streamed();
        weigh();
    }

    // B as it lies in memory, all else outside.
    Schedule streamed() const {
        const ProductIndex &m = walk_.m(), &n = walk_.n(), &k = walk_.k();
        Schedule made;
        for (const Loops* indices : {&it_.outer, &it_.rows, &it_.columns}) {
            for (const ProductIndex& index : *indices) {
                if (index.letter == m.letter || index.letter == n.letter) continue;
                made.levels.push_back({index.letter, 1, true});
            }
        }
        made.levels.push_back({k.letter, ProductWalk::kStreamedUnits, false});
        made.levels.push_back({n.letter, 1, true});
        made.levels.push_back({m.letter, equal_step(m.extent, kStreamingRows, 1), true});
        return made;
    }

    // An entry for every value of the sums that are not the kernel's.
    Term term() const {
        const ProductIndex &m = m_, &k = walk_.k();
        Term made{.lda = walk_.transposes() ? k.a : m.a,
                  .entries_a = {0},
                  .entries_b = {0},
                  .first = true,
                  .last = true};
        for (const ProductIndex& sum : it_.sums) {
            if (sum.letter == k.letter) continue;
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
        Contraction& made = made_.contraction;
        made.bytes_a = walk_.bytes_a();
        made.bytes_b = walk_.bytes_b();
        made.bytes_c = walk_.bytes_c();
        made.flops = 2 * values_of(it_.rows) * values_of(it_.columns) * values_of(it_.sums);
    }

    const ProductWalk& walk_;
    StridedProduct packed_;
    StridedProduct it_;
    ProductIndex m_;
    ProductIndex n_;  // as it_, with the distance of a bias that is copied
    std::int64_t lanes_ = 1;
    std::int64_t columns_ = 0;  // that the kernel multiplies
    ProductMapping made_ = {};
};

}  // namespace

ProductMapping mapping_of(const StridedProduct& product, const ProductWay& way,
                          const Machine& machine) {
    ProductWalk walk(product, way.exchanges, machine);
    walk.follow(way);
    return Mapper(walk, machine).mapping(way);
}

}  // namespace dlprim
