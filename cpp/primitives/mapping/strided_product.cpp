#include "primitives/mapping/strided_product.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "primitives/mapping/instruction_form.h"
#include "primitives/mapping/product_end.h"

namespace dlprim {
namespace {

bool collect(const Expression& value, ProductFactors& factors) {
    if (value.kind == Expression::Kind::number) {
        factors.scale *= value.number;
        return true;
    }
    if (value.kind == Expression::Kind::read) {
        factors.operands.push_back(static_cast<int>(value.number));
        return true;
    }
    if (value.kind != Expression::Kind::call || value.name != "*") return false;
    return std::all_of(value.operands.begin(), value.operands.end(),
                       [&](const Expression& it) { return collect(it, factors); });
}

// Null where no class has the index.
std::vector<ProductIndex>* class_of(const ProductIndex& index, StridedProduct& product) {
    switch (role_of(index.c != 0, index.a != 0, index.b != 0)) {
        case LoopRole::apart: return &product.outer;
        case LoopRole::row: return &product.rows;
        case LoopRole::column: return &product.columns;
        case LoopRole::sum: return &product.sums;
        case LoopRole::none: break;
    }
    return nullptr;
}

void sort_by(std::int64_t ProductIndex::* stride, std::vector<ProductIndex>& indices) {
    std::stable_sort(indices.begin(), indices.end(),
                     [&](const ProductIndex& left, const ProductIndex& right) {
                         return std::abs(left.*stride) > std::abs(right.*stride);
                     });
}

}  // namespace

std::optional<ProductFactors> factors_of(const BoundStatement& statement) {
    ProductFactors factors;
    const bool sums =
        statement.reduction == Reduction::sum || statement.reduction == Reduction::none;
    if (!sums || !collect(statement.value, factors)) return {};
    return factors;
}

double StridedProduct::flops() const {
    double product = 2;
    for (const auto* indices : {&outer, &rows, &columns, &sums}) {
        product *= static_cast<double>(extent_of(*indices));
    }
    return product;
}

std::int64_t extent_of(const std::vector<ProductIndex>& indices) {
    std::int64_t product = 1;
    for (const ProductIndex& index : indices) product *= index.extent;
    return product;
}

void merge(std::vector<ProductIndex>& indices) {
    for (std::size_t i = indices.size(); i-- > 1;) {
        const ProductIndex outer = indices[i - 1];
        ProductIndex& inner = indices[i];
        const std::int64_t extent = inner.extent;
        if (outer.c != extent * inner.c || outer.a != extent * inner.a ||
            outer.b != extent * inner.b || outer.bias != extent * inner.bias) {
            continue;
        }
        inner.extent *= outer.extent;
        inner.members |= outer.members;
        indices.erase(indices.begin() + static_cast<std::ptrdiff_t>(i) - 1);
    }
}

std::vector<ProductIndex> merged(std::vector<ProductIndex> indices) {
    merge(indices);
    return indices;
}

bool slides(const ProductIndex& sum, const ProductIndex& along,
            std::int64_t ProductIndex::* stride) {
    const std::int64_t one = std::abs(sum.*stride), other = std::abs(along.*stride);
    if (one == 0 || other == 0) return false;
    const std::int64_t both = std::gcd(one, other);
    return one / both < along.extent && other / both < sum.extent;
}

StridedProduct exchanged(const StridedProduct& product) {
    StridedProduct made = product;
    std::swap(made.dtype, made.b_type);
    std::swap(made.offset_a, made.offset_b);
    std::swap(made.uses_a, made.uses_b);
    std::swap(made.rows, made.columns);
    for (auto* indices : {&made.outer, &made.rows, &made.columns, &made.sums}) {
        for (ProductIndex& index : *indices) std::swap(index.a, index.b);
    }
    sort_by(&ProductIndex::a, made.sums);
    return made;
}

std::optional<StridedProduct> product_in(const BoundStatement& statement,
                                         const std::vector<NextStatement>& next) {
    const auto factors = factors_of(statement);
    if (!factors || factors->operands.size() != 2) return {};
    const auto found = end_of(statement, next);
    if (!found) return {};
    const auto operand = [&](int which) -> const BoundOperand& {
        return statement
            .operands[static_cast<std::size_t>(factors->operands[static_cast<std::size_t>(which)])];
    };
    const BoundOperand &a = operand(0), &b = operand(1);
    const bool is_int8_product =
        is_int8(a.dtype) && is_int8(b.dtype) && statement.result.dtype == DType::s32;
    const auto by_rows = [](DType dtype) { return is_int8(dtype) || dtype == DType::f16; };
    const bool is_other = a.dtype != b.dtype || by_rows(a.dtype) || by_rows(statement.result.dtype);
    if (is_int8_product ? !next.empty() : is_other) return {};
    // An epilogue scales what stood in C, too.
    if (!statement.initializes && factors->scale != 1) return {};
    StridedProduct made{.dtype = a.dtype,
                        .b_type = b.dtype,
                        .c_type = statement.result.dtype,
                        .accumulates = !statement.initializes,
                        .scale = static_cast<float>(factors->scale),
                        .offset_a = a.offset,
                        .offset_b = b.offset,
                        .offset_c = statement.result.offset,
                        .end = found->end};
    char letter = 'a';
    for (std::size_t i = 0; i < statement.indices.size(); ++i) {
        const std::int64_t extent = statement.indices[i].extent;
        if (extent == 0) return {};
        if (extent == 1) continue;
        const ProductIndex index{.letter = letter,
                                 .extent = extent,
                                 .c = statement.result.strides[i],
                                 .a = a.strides[i],
                                 .b = b.strides[i],
                                 .bias = found->strides[i],
                                 .members = 1U << (letter - 'a')};
        auto* const among = class_of(index, made);
        if (among == nullptr || ++letter > 'z') return {};
        among->push_back(index);
        made.names.push_back(statement.indices[i].name);
    }
    // Rows do not multiply them.
    if (is_int8(made.dtype) && made.sums.empty()) {
        made.sums.push_back({.letter = letter, .a = 1, .b = 1, .members = 1U << (letter - 'a')});
        made.names.emplace_back("1");
    }
    for (auto* indices : {&made.outer, &made.rows, &made.columns}) {
        sort_by(&ProductIndex::c, *indices);
    }
    sort_by(&ProductIndex::a, made.sums);
    return made;
}

std::string reason_for_none(const BoundStatement& statement) {
    const auto factors = factors_of(statement);
    if (!factors) return "it is no sum of products";
    if (factors->operands.size() != 2) return "it multiplies no two arrays";
    if (std::any_of(statement.indices.begin(), statement.indices.end(),
                    [](const auto& index) { return index.extent == 0; })) {
        return "an index has no values";
    }
    const auto product = product_in(statement);
    if (!product) return "an array moves along an index alone, or their types do not go together";
    if (product->sums.empty()) return "no index of both factors is summed over";
    if (product->rows.empty() && product->columns.empty()) {
        return "no index moves one factor and the result";
    }
    if (!product->rows.empty() && !product->columns.empty()) return {};
    return std::string("no index moves the result and the ") +
           (product->rows.empty() ? "first" : "second") +
           " factor alone, so that matrices meet vectors";
}

}  // namespace dlprim
