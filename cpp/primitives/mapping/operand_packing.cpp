#include "primitives/mapping/operand_packing.h"

#include <string>
#include <utility>

#include "primitives/tensor/channel_blocks.h"

namespace dlprim {
namespace {

LayoutDimension dimension_of(const ProductIndex& index, std::int64_t stride) {
    return {index.letter, index.extent, {{index.extent, stride}}};
}

}  // namespace

PackedOperand pack_densely(DType type, const OperandOrder& order) {
    PackedOperand made{{type, {}}, {type, {}}};
    std::int64_t stride = 1;
    for (auto among = order.classes.rbegin(); among != order.classes.rend(); ++among) {
        for (auto index = (*among)->rbegin(); index != (*among)->rend(); ++index) {
            made.plain.dimensions.push_back(dimension_of(*index, (*index).*(order.stride)));
            made.packed.dimensions.push_back(dimension_of(*index, stride));
            (*index).*(order.stride) = stride;
            stride *= index->extent;
        }
    }
    return made;
}

PackedColumns pack_columns(StridedProduct& product, std::int64_t word) {
    StridedProduct& it = product;
    PackedColumns made{.operand = {{it.b_type, {}}, {it.b_type, {}}}};
    const auto add = [&](const ProductIndex& index, LayoutDimension packed) {
        made.operand.plain.dimensions.push_back(dimension_of(index, index.b));
        made.operand.packed.dimensions.push_back(std::move(packed));
    };
    std::int64_t stride = word;
    const bool blocks = it.columns.size() == 1;
    made.block = blocks ? linear_blocks(it.columns.front().extent).block : 0;
    for (auto index = it.columns.rbegin(); !blocks && index != it.columns.rend(); ++index) {
        add(*index, dimension_of(*index, stride));
        index->b = stride;
        stride *= index->extent;
    }
    if (blocks) stride *= made.block;
    const std::int64_t row = stride;
    for (auto index = it.sums.rbegin(); index != it.sums.rend(); ++index) {
        const bool is_depth = index == it.sums.rbegin();
        LayoutDimension packed = dimension_of(*index, stride);
        if (is_depth && word > 1) {
            packed.levels = {{(index->extent + word - 1) / word, stride}, {word, 1}};
        }
        add(*index, packed);
        index->b = is_depth ? row / word : stride;
        stride *= is_depth ? (index->extent + word - 1) / word : index->extent;
    }
    if (blocks) {
        ProductIndex& columns = it.columns.front();
        const std::int64_t count = Blocks{columns.extent, made.block}.count();
        LayoutDimension packed = dimension_of(columns, word);
        packed.levels = {{count, stride}, {made.block, word}};
        add(columns, packed);
        columns.b = word;
        made.block_stride = stride;
        stride *= count;
    }
    for (auto index = it.outer.rbegin(); index != it.outer.rend(); ++index) {
        add(*index, dimension_of(*index, stride));
        index->b = stride;
        stride *= index->extent;
    }
    return made;
}

std::optional<BoundStatement> pack_bias(StridedProduct& product, ProductIndex& n) {
    const bool in_place = product.end.bias_type == DType::f32 && (n.bias == 1 || n.extent == 1);
    if (in_place) return {};
    BoundStatement copy{.result = {.dtype = DType::f32},
                        .operands = {{.dtype = product.end.bias_type}},
                        .value = {.kind = Expression::Kind::read}};
    std::int64_t stride = 1;
    const auto add = [&](ProductIndex& index) {
        copy.indices.push_back({std::string(1, index.letter), index.extent});
        copy.operands[0].strides.push_back(index.bias);
        copy.result.strides.push_back(stride);
        index.bias = stride;
        stride *= index.extent;
    };
    for (ProductIndex& index : product.columns) {
        if (index.letter == n.letter) add(index);
    }
    for (auto* indices : {&product.columns, &product.outer}) {
        for (ProductIndex& index : *indices) {
            if (index.letter != n.letter && index.bias != 0) add(index);
        }
    }
    n.bias = 1;
    return copy;
}

}  // namespace dlprim
