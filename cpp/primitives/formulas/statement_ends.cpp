#include "primitives/formulas/statement_ends.h"

#include <utility>

#include "jit/machine.h"
#include "primitives/formulas/product_chain.h"
#include "primitives/mapping/copied_operand.h"
#include "primitives/products/product_run.h"

namespace dlprim {
namespace {

NextStatement next_statement(const StatementBinding& binding) {
    NextStatement made{.statement = binding.statement};
    for (const ArrayPlace& it : binding.operands) {
        made.is_result.push_back(it.of == binding.result.of && it.number == binding.result.number);
    }
    return made;
}

// Whether the cheapest way to compute the product has `next` as its end, behind those it has, and
// is expected to take no longer than the product and `next` one after the other.
bool takes_end(const StatementBinding& product, const StatementBinding& next) {
    const bool is_plain = product.places.empty() && next.places.empty() && next.copies.empty();
    const bool writes_it =
        product.result.of == next.result.of && product.result.number == next.result.number;
    if (!is_plain || !writes_it || !factors_of(product.statement)) return false;
    BoundProduct whole{.statement = chain_of(product.statement).back().statement};
    for (const StatementBinding& it : product.next) whole.next.push_back(next_statement(it));
    whole.next.push_back(next_statement(next));
    const auto ended = whole.strided();
    whole.next.pop_back();
    const auto alone = whole.strided();
    if (!ended || !alone) return false;
    const ProductOption best = product_options(*ended).front();
    const double apart =
        product_options(*alone).front().cycles + cycles_of_end(*ended, this_machine());
    return best.ends && best.cycles <= apart;
}

}  // namespace

std::vector<StatementBinding> with_ends(std::vector<StatementBinding> bindings) {
    std::vector<StatementBinding> made;
    for (StatementBinding& it : bindings) {
        const bool is_end = !made.empty() && takes_end(made.back(), it);
        (is_end ? made.back().next : made).push_back(std::move(it));
    }
    return made;
}

void add_end(const StatementBinding& binding, BoundProduct& product, Step& step) {
    for (const StatementBinding& it : binding.next) {
        const NextStatement& next = product.next.emplace_back(next_statement(it));
        for (std::size_t i = 0; i < it.operands.size(); ++i) {
            if (!next.is_result[i]) step.operands.push_back(it.operands[i]);
        }
        ++step.more;
    }
}

}  // namespace dlprim
