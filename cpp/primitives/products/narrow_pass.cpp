#include "primitives/products/narrow_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "jit/machine.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Cycles that begin a call, and for every halving of a vector until its lanes are one sum.
constexpr double kCall = 60;
constexpr double kHalving = 1.5;
constexpr double kRowsTogether = 4;  // share what is loaded of the vectors
// Elements from row to row and from vector to vector: programs reach 2^31 bytes.
constexpr std::int64_t kFarthest = std::int64_t{1} << 24;

// With what is one index as one; none where a class needs several.
std::optional<StridedProduct> simple(StridedProduct product) {
    for (auto* indices : {&product.rows, &product.columns, &product.sums}) {
        *indices = merged(std::move(*indices));
        if (indices->size() > 1) return {};
    }
    return product;
}

ProductIndex only(const std::vector<ProductIndex>& indices) {
    return indices.empty() ? ProductIndex{} : indices.front();
}

// An activation reads what was stored, and then what it is applied to is added there, too.
bool adds_bias(const ProductEnd& end, const ProductIndex& row, const ProductIndex& vector) {
    return end.bias && end.bias_type == DType::f32 && end.activation == Activation::none &&
           std::min(row.bias, vector.bias) >= 0 && std::max(row.bias, vector.bias) <= kFarthest;
}

}  // namespace

std::optional<NarrowPass> NarrowPass::of(const StridedProduct& product) {
    const bool is_float = product.dtype == DType::f32 && product.c_type == DType::f32;
    if (!is_float || product.accumulates || product.scale != 1) return {};
    auto it = simple(product);
    if (!it || it->sums.size() != 1) return {};
    const bool exchanges = extent_of(it->rows) < extent_of(it->columns);
    if (exchanges) it = exchanged(*it);
    const ProductIndex row = only(it->rows), vector = only(it->columns), sum = it->sums.front();
    if (vector.extent > kFewVectors || sum.a != 1 || sum.b != 1) return {};
    for (const std::int64_t step : {row.a, row.c, vector.b, vector.c}) {
        if (step < 0 || step > kFarthest) return {};
    }
    return NarrowPass(*it,
                      {.rows = row.extent,
                       .columns = sum.extent,
                       .block = sum.extent,
                       .row_step = row.a,
                       .block_step = sum.extent,
                       .vector_count = vector.extent,
                       .vector_step = vector.b,
                       .bias = adds_bias(it->end, row, vector),
                       .bias_row_step = row.bias,
                       .bias_vector_step = vector.bias,
                       .out_row_step = row.c,
                       .out_vector_step = vector.c},
                      exchanges);
}

NarrowPass::NarrowPass(const StridedProduct& product, const NarrowShape& shape, bool exchanges)
    : product_(product),
      is_exchanged_(exchanges),
      ends_(product.end.is_nothing() || shape.bias),
      narrow_(shape),
      count_(extent_of(product.outer)),
      flops_(product.flops()) {
    const Machine& machine = this_machine();
    const auto vectors = static_cast<double>(shape.vector_count);
    const double lanes = machine.vector_lanes();
    const double steps = static_cast<double>(shape.columns) / lanes + 1;
    const double step = std::max(vectors / machine.sustained_fmas_per_cycle,
                                 (1 + vectors / kRowsTogether) / machine.loads_per_cycle);
    cycles_ =
        static_cast<double>(count_) *
        (static_cast<double>(shape.rows) * (steps * step + kHalving * std::log2(lanes) * vectors) +
         kCall);
}

void NarrowPass::run(const void* a, const void* b, const void* bias, void* c) const {
    if (is_exchanged_) std::swap(a, b);
    const WorkOf work(flops_, flops_ * 2);
    const auto one = [&](std::int64_t number) {
        std::int64_t at_a = product_.offset_a, at_b = product_.offset_b, at_c = product_.offset_c;
        std::int64_t at_bias = product_.end.bias_offset;
        for (auto index = product_.outer.rbegin(); index != product_.outer.rend(); ++index) {
            const std::int64_t value = number % index->extent;
            number /= index->extent;
            at_a += value * index->a;
            at_b += value * index->b;
            at_c += value * index->c;
            at_bias += value * index->bias;
        }
        const auto* const added = static_cast<const float*>(bias);
        narrow_.run({static_cast<const float*>(a) + at_a, static_cast<const float*>(b) + at_b,
                     added == nullptr ? nullptr : added + at_bias, static_cast<float*>(c) + at_c});
    };
    count_ == 1 ? one(0) : parallel_for(count_, one);
}

std::string NarrowPass::described() const {
    return "product: sums along the rows of " + std::string(is_exchanged_ ? "B" : "A");
}

}  // namespace dlprim
