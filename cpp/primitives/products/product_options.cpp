#include "primitives/products/product_options.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "jit/machine.h"
#include "primitives/mapping/copied_operand.h"

namespace dlprim {
namespace {

// Of sums along the rows of a matrix, which multiply a vector in a cycle: cycles of a call, about.
constexpr double kRowCall = 500;

std::int64_t vectors_of(const StridedProduct& product) {
    return std::min(extent_of(product.rows), extent_of(product.columns));
}

// Few sums along the rows of both factors: what row programs do as well as the kernel.
bool is_along_rows(const StridedProduct& product) {
    const ProductIndex& inner = product.sums.back();
    return vectors_of(product) <= kFewVectors && !product.needs_kernel() && inner.a == 1 &&
           inner.b == 1;
}

}  // namespace

std::vector<ProductOption> product_options(const StridedProduct& product) {
    const auto ways = product_ways(product, this_machine());
    if (ways.empty() && is_int8(product.dtype)) {
        throw std::invalid_argument(
            "the factors of a product are 8-bit arrays, expected no number beside them");
    }
    const double cycles =
        ways.empty() ? std::numeric_limits<double>::infinity() : ways.front().cycles;
    std::vector<ProductOption> options;
    options.reserve(ways.size() + 2);
    for (const ProductWay& way : ways) {
        options.push_back({.cycles = way.cycles, .way = way, .ends = way.ends});
    }
    const auto add = [&](bool is_best, ProductOption option) {
        options.insert(is_best ? options.begin() : options.end(), std::move(option));
    };
    if (auto winograd = WinogradProduct::of(product)) {
        const double of_winograd = winograd->cycles(cycles);
        add(of_winograd < cycles,
            {.cycles = of_winograd, .winograd = std::move(winograd), .ends = true});
    }
    const double end = cycles_of_end(product, this_machine());
    auto narrow = NarrowPass::of(product);
    if (ways.empty() || is_along_rows(product)) {
        const double of_rows = product.flops() / 2 / this_machine().vector_lanes() + kRowCall + end;
        // Of several vectors rows copy the matrix; sums along rows do not.
        const bool is_best = !narrow && vectors_of(product) == 1 && of_rows < cycles;
        add(ways.empty() || is_best, {.cycles = of_rows, .ends = product.end.is_nothing()});
    }
    if (narrow) {
        const bool ends = narrow->ends();
        const double of_narrow = narrow->cycles() + (ends ? 0 : end);
        add(of_narrow < cycles, {.cycles = of_narrow, .narrow = std::move(narrow), .ends = ends});
    }
    return options;
}

std::string to_string(const ProductOption& option, const StridedProduct& product) {
    if (option.way) return to_string(*option.way, product);
    if (option.winograd) return "Winograd's algorithm";
    return option.narrow ? "sums along rows" : "rows";
}

}  // namespace dlprim
