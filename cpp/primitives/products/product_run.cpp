#include "primitives/products/product_run.h"

#include <string>
#include <utility>

#include "primitives/mapping/product_end.h"

namespace dlprim {
namespace {

using Kernel = std::shared_ptr<ProductPass>;

// A product that sums nothing and its end, as one statement that rounds once.
std::optional<BoundStatement> without_sums(const BoundProduct& product) {
    const auto found = end_of(product.statement, product.next);
    BoundStatement made = product.statement;
    if (!found || extent_of(made, true) != 1 || !made.initializes) return {};
    if (found->end.bias) {
        const auto bias = static_cast<std::int64_t>(made.operands.size());
        made.operands.push_back({found->end.bias_type, found->end.bias_offset, found->strides});
        made.value = call_of("+", {made.value, read_of(bias)});
    }
    if (found->end.activation != Activation::none) {
        made.value = call_of(std::string(name_of(found->end.activation)), {made.value});
    }
    for (std::size_t i = made.indices.size(); i-- > 0;) {
        if (made.indices[i].reduced) remove_index(made, i);
    }
    made.reduction = Reduction::none;
    return made;
}

ProductOption cheapest(const BoundProduct& product) {
    const auto strided = product.strided();
    if (strided) return product_options(*strided).front();
    return {.ends = product.next.empty() || without_sums(product).has_value()};
}

std::variant<Kernel, WinogradProduct, NarrowPass, RowStatement> made_of(
    const BoundProduct& product, const ProductOption& option) {
    if (option.way) return std::make_shared<ProductPass>(product.strided().value(), *option.way);
    if (option.winograd) return *option.winograd;
    if (option.narrow) return *option.narrow;
    const auto whole = option.ends ? without_sums(product) : std::nullopt;
    return RowStatement(whole.value_or(product.statement));
}

}  // namespace

std::optional<StridedProduct> BoundProduct::strided() const {
    auto found = product_in(statement, next);
    if (!found || !found->is_of_matrices()) return {};
    found->uses_a = uses_a;
    found->uses_b = uses_b;
    return found;
}

ProductRun::ProductRun(const BoundProduct& product) : ProductRun(product, cheapest(product)) {}

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
    } else if (const auto* const winograd = std::get_if<WinogradProduct>(&what_)) {
        winograd->run(operands[0], operands[1], bias, result);
    } else if (const auto* const narrow = std::get_if<NarrowPass>(&what_)) {
        narrow->run(operands[0], operands[1], bias, result);
    } else {
        std::get<RowStatement>(what_).run(operands, result);
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
    } else if (std::holds_alternative<WinogradProduct>(what_)) {
        text = "product: a convolution by Winograd's algorithm\n";
    } else if (const auto* const narrow = std::get_if<NarrowPass>(&what_)) {
        text = narrow->described() + "\n";
    } else {
        text = std::get<RowStatement>(what_).described();
    }
    for (const Next& next : next_) text += "then, in place: " + next.statement.described();
    return text;
}

}  // namespace dlprim
