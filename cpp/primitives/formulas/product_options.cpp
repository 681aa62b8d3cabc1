#include "primitives/formulas/product_options.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace dlprim {
namespace {

// Of sums along the rows of a matrix: multiplications in a cycle and cycles of a call, about.
constexpr double kRowLanes = 16;
constexpr double kRowCall = 500;

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
    for (const ProductWay& way : ways) options.push_back({.cycles = way.cycles, .way = way});
    const auto add = [&](ProductOption option) {
        options.insert(option.cycles < cycles ? options.begin() : options.end(), std::move(option));
    };
    const bool few = std::min(extent_of(product.rows), extent_of(product.columns)) <= kFewVectors;
    const ProductIndex& inner = product.sums.back();
    const bool along_rows = few && !is_int8(product.dtype) && inner.a == 1 && inner.b == 1;
    if (ways.empty() || along_rows) add({.cycles = product.flops() / 2 / kRowLanes + kRowCall});
    if (auto narrow = NarrowPass::of(product)) {
        const double of_narrow = narrow->cycles();
        add({.cycles = of_narrow, .narrow = std::move(narrow)});
    }
    return options;
}

std::string to_string(const ProductOption& option, const StridedProduct& product) {
    if (option.way) return to_string(*option.way, product);
    return option.narrow ? "sums along rows" : "rows";
}

}  // namespace dlprim
