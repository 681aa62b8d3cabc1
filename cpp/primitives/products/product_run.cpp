#include "primitives/products/product_run.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "jit/machine.h"

namespace dlprim {
namespace {

// Of sums along the rows of a matrix, which multiply a vector in a cycle: cycles of a call, about.
constexpr double kRowCall = 500;
// Ways that are expected to take so many times as long as the best one are no options.
constexpr double kHopeless = 4;

using Kernel = std::shared_ptr<ProductPass>;

std::variant<Kernel, NarrowPass, RowStatement> made_of(const BoundProduct& product,
                                                       const ProductOption& option) {
    if (option.of == ProductOption::Of::rows) return RowStatement(product.statement);
    const StridedProduct strided = product.strided().value();
    if (option.of == ProductOption::Of::narrow) return NarrowPass::of(strided).value();
    return std::make_shared<ProductPass>(strided, option.way);
}

// Few sums along the rows of both factors: what row programs do as well as the kernel.
bool is_along_rows(const StridedProduct& product) {
    const ProductIndex& inner = product.sums.back();
    return std::min(extent_of(product.rows), extent_of(product.columns)) <= kFewVectors &&
           !product.needs_kernel() && inner.a == 1 && inner.b == 1;
}

}  // namespace

std::string to_string(const ProductOption& option) {
    if (option.of == ProductOption::Of::kernel) return to_string(option.way);
    return option.of == ProductOption::Of::narrow ? "sums along rows" : "rows";
}

std::optional<StridedProduct> BoundProduct::strided() const {
    auto found = product_in(statement, next);
    if (!found || !found->is_of_matrices()) return {};
    found->uses_a = uses_a;
    found->uses_b = uses_b;
    return found;
}

std::vector<ProductOption> product_options(const BoundProduct& it) {
    const auto strided = it.strided();
    if (!strided) return {{.of = ProductOption::Of::rows, .ends = it.next.empty()}};
    const StridedProduct& product = *strided;
    const auto ways = product_ways(product, this_machine());
    if (ways.empty() && is_int8(product.dtype)) {
        throw std::invalid_argument(
            "the factors of a product are 8-bit arrays, expected int8 for one of the two, and no "
            "number beside them");
    }
    const double cycles =
        ways.empty() ? std::numeric_limits<double>::infinity() : ways.front().cycles;
    std::vector<ProductOption> options;
    for (const ProductWay& way : ways) {
        if (way.cycles > kHopeless * cycles) break;
        options.push_back({.way = way, .ends = way.ends});
    }
    const auto add = [&](bool is_best, const ProductOption& option) {
        options.insert(is_best ? options.begin() : options.end(), option);
    };
    const auto narrow = NarrowPass::of(product);
    if (ways.empty() || is_along_rows(product)) {
        // Of several vectors rows copy the matrix; sums along rows do not.
        const bool is_vector = std::min(extent_of(product.rows), extent_of(product.columns)) == 1;
        const bool is_best =
            !narrow && is_vector &&
            cycles > product.flops() / 2 / this_machine().vector_lanes() + kRowCall;
        add(ways.empty() || is_best,
            {.of = ProductOption::Of::rows, .ends = product.end.is_nothing()});
    }
    if (narrow) {
        add(narrow->cycles() < cycles, {.of = ProductOption::Of::narrow, .ends = narrow->ends()});
    }
    return options;
}

ProductRun::ProductRun(const BoundProduct& product)
    : ProductRun(product, product_options(product).front()) {}

ProductRun::ProductRun(const BoundProduct& product, const ProductOption& option)
    : what_(made_of(product, option)) {
    if (option.ends) return;
    for (const NextStatement& it : product.next) {
        next_.push_back({RowStatement(it.statement), it.is_result});
    }
}

void ProductRun::run(std::span<const void* const> operands, void* result,
                     const ProductPass::Factors& packed) const {
    const void* const bias = operands.size() > 2 ? operands[2] : nullptr;
    if (const auto* const pass = std::get_if<Kernel>(&what_)) {
        (*pass)->run({{operands[0], operands[1]}, bias}, result, packed);
    } else if (const auto* const narrow = std::get_if<NarrowPass>(&what_)) {
        narrow->run(operands[0], operands[1], bias, result);
    } else {
        std::get<RowStatement>(what_).run({operands.begin(), operands.end()}, result);
    }
    for (const Next& next : next_) {
        std::vector<const void*> read;
        for (const bool is_result : next.is_result) read.push_back(is_result ? result : bias);
        next.statement.run(read, result);
    }
}

std::int64_t ProductRun::packed_bytes(int operand) const {
    const auto* const pass = std::get_if<Kernel>(&what_);
    return pass == nullptr ? 0 : (*pass)->packed_bytes(operand);
}

void ProductRun::pack(int operand, const void* array, char* scratch) const {
    std::get<Kernel>(what_)->pack(operand, array, scratch);
}

std::shared_ptr<ProductPass> ProductRun::kernel_pass() const {
    const auto* const pass = std::get_if<Kernel>(&what_);
    return pass == nullptr ? nullptr : *pass;
}

std::string ProductRun::described() const {
    std::string text;
    if (const auto* const pass = std::get_if<Kernel>(&what_)) {
        text = (*pass)->described();
    } else if (const auto* const narrow = std::get_if<NarrowPass>(&what_)) {
        text = narrow->described() + "\n";
    } else {
        text = std::get<RowStatement>(what_).described();
    }
    for (const Next& next : next_) text += "then, in place: " + next.statement.described();
    return text;
}

}  // namespace dlprim
