#include "primitives/formulas/product_chain.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <utility>

#include "lang/affine.h"
#include "primitives/mapping/strided_product.h"

namespace dlprim {
namespace {

// Operands of which all orders are tried; of more, the cheapest next product is taken.
constexpr std::size_t kAllOrders = 5;

// A factor of what is left to multiply.
struct Factor {
    int operand = 0;
    BoundOperand where = {};
};

struct Pair {
    std::size_t left = 0;
    std::size_t right = 0;
};

class Chain {
public:
    Chain(const BoundStatement& whole, const ProductFactors& factors)
        : whole_(whole), scale_(factors.scale) {
        for (const int operand : factors.operands) {
            factors_.push_back({operand, whole.operands[static_cast<std::size_t>(operand)]});
        }
    }

    std::vector<ChainStep> steps() {
        for (std::size_t i = 0; i < factors_.size(); ++i) sum_alone(i);
        while (factors_.size() > 2) {
            const Pair next = best(factors_).second;
            std::vector<Factor> two = {factors_[next.left], factors_[next.right]};
            factors_.erase(factors_.begin() + static_cast<std::ptrdiff_t>(next.right));
            factors_.erase(factors_.begin() + static_cast<std::ptrdiff_t>(next.left));
            const Factor made = add_step(two, result_of(two, factors_));
            factors_.push_back(made);
        }
        add_last();
        return std::move(steps_);
    }

private:
    std::size_t indices() const { return whole_.indices.size(); }
    static bool has(const Factor& factor, std::size_t index) {
        return factor.where.strides[index] != 0;
    }
    bool is_reduced(std::size_t index) const { return whole_.indices[index].reduced; }

    // Whether the index is still needed beside these.
    bool is_kept(std::size_t index, const std::vector<Factor>& others) const {
        return !is_reduced(index) ||
               std::any_of(others.begin(), others.end(),
                           [&](const Factor& other) { return has(other, index); });
    }

    // The index along which elements of the last result are neighbours, or none of them.
    std::size_t innermost() const {
        std::size_t found = indices();
        for (std::size_t i = 0; i < indices(); ++i) {
            const std::int64_t stride = std::abs(whole_.result.strides[i]);
            if (stride == 0) continue;
            if (found == indices() || stride < std::abs(whole_.result.strides[found])) found = i;
        }
        return found;
    }

    // What these have that is kept, dense; in the order of the indices, but neighbours are those of
    // the last result, which a product then writes as it lies.
    BoundOperand result_of(const std::vector<Factor>& from,
                           const std::vector<Factor>& others) const {
        const DType dtype = from.front().where.dtype;
        BoundOperand made{.dtype = is_int8(dtype) ? DType::f32 : dtype};
        made.strides.assign(indices(), 0);
        std::vector<std::size_t> order(indices());
        std::iota(order.rbegin(), order.rend(), std::size_t{0});
        std::stable_partition(order.begin(), order.end(),
                              [&](std::size_t i) { return i == innermost(); });
        std::int64_t stride = 1;
        for (const std::size_t i : order) {
            const bool there = std::any_of(from.begin(), from.end(),
                                           [&](const Factor& factor) { return has(factor, i); });
            if (!there || !is_kept(i, others)) continue;
            made.strides[i] = stride;
            stride = checked_product(stride, whole_.indices[i].extent);
        }
        return made;
    }

    double operations(const std::vector<Factor>& from) const {
        double product = 1;
        for (std::size_t i = 0; i < indices(); ++i) {
            const bool there = std::any_of(from.begin(), from.end(),
                                           [&](const Factor& factor) { return has(factor, i); });
            if (there) product *= static_cast<double>(whole_.indices[i].extent);
        }
        return product;
    }

    // The operations of the best order, and its first pair.
    std::pair<double, Pair> best(const std::vector<Factor>& factors) const {
        if (factors.size() == 2) return {operations(factors), {0, 1}};
        std::pair<double, Pair> found{std::numeric_limits<double>::infinity(), {}};
        for (std::size_t left = 0; left < factors.size(); ++left) {
            for (std::size_t right = left + 1; right < factors.size(); ++right) {
                std::vector<Factor> rest;
                for (std::size_t i = 0; i < factors.size(); ++i) {
                    if (i != left && i != right) rest.push_back(factors[i]);
                }
                const std::vector<Factor> two = {factors[left], factors[right]};
                double cost = operations(two);
                if (factors.size() <= kAllOrders) {
                    rest.push_back({0, result_of(two, std::vector(rest))});
                    cost += best(rest).first;
                }
                if (cost < found.first) found = {cost, {left, right}};
            }
        }
        return found;
    }

    // An operand along whose index nothing else moves is summed over it first.
    void sum_alone(std::size_t which) {
        std::vector<Factor> others = factors_;
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(which));
        bool alone = false;
        for (std::size_t i = 0; i < indices(); ++i) {
            alone = alone || (has(factors_[which], i) && !is_kept(i, others));
        }
        if (!alone || others.empty()) return;
        const std::vector<Factor> one = {factors_[which]};
        factors_[which] = add_step(one, result_of(one, others));
    }

    Factor add_step(const std::vector<Factor>& from, const BoundOperand& result) {
        ChainStep step{.statement = {.reduction = Reduction::sum}};
        for (std::size_t i = 0; i < indices(); ++i) {
            IndexRange index = whole_.indices[i];
            index.reduced = result.strides[i] == 0;
            const bool there = std::any_of(from.begin(), from.end(),
                                           [&](const Factor& factor) { return has(factor, i); });
            if (!there) index = {.name = index.name, .extent = 1};
            step.statement.indices.push_back(index);
        }
        step.statement.result = result;
        step.elements = 1;
        for (std::size_t i = 0; i < indices(); ++i) {
            if (result.strides[i] == 0) continue;
            step.elements = checked_product(step.elements, whole_.indices[i].extent);
        }
        set_operands(step, from);
        steps_.push_back(std::move(step));
        const auto made = whole_.operands.size() + steps_.size() - 1;
        return {static_cast<int>(made), result};
    }

    void add_last() {
        ChainStep step{.statement = whole_};
        // What an earlier step has summed.
        for (std::size_t i = 0; i < indices(); ++i) {
            const bool was_there =
                std::any_of(whole_.operands.begin(), whole_.operands.end(),
                            [&](const BoundOperand& operand) { return operand.strides[i] != 0; });
            if (was_there && is_reduced(i) && !is_kept(i, factors_)) {
                step.statement.indices[i].extent = 1;
            }
        }
        set_operands(step, factors_);
        if (scale_ != 1) {
            Expression scaled{.kind = Expression::Kind::call, .name = "*"};
            scaled.operands = {{.number = scale_}, std::move(step.statement.value)};
            step.statement.value = std::move(scaled);
        }
        steps_.push_back(std::move(step));
    }

    static void set_operands(ChainStep& step, const std::vector<Factor>& from) {
        step.statement.operands.clear();
        Expression product{.kind = Expression::Kind::call, .name = "*"};
        for (const Factor& factor : from) {
            step.operands.push_back(factor.operand);
            product.operands.push_back(
                {.kind = Expression::Kind::read,
                 .number = static_cast<double>(step.statement.operands.size())});
            step.statement.operands.push_back(factor.where);
        }
        step.statement.value = from.size() == 1 ? product.operands.front() : product;
    }

    const BoundStatement& whole_;
    double scale_;
    std::vector<Factor> factors_;
    std::vector<ChainStep> steps_;
};

}  // namespace

std::vector<ChainStep> chain_of(const BoundStatement& statement) {
    const auto factors = factors_of(statement);
    const auto& indices = statement.indices;
    const bool is_empty = std::any_of(indices.begin(), indices.end(),
                                      [](const IndexRange& it) { return it.extent == 0; });
    const bool sums = std::any_of(indices.begin(), indices.end(),
                                  [](const IndexRange& it) { return it.reduced; });
    if (factors && factors->operands.size() >= 2 && sums && !is_empty) {
        return Chain(statement, *factors).steps();
    }
    ChainStep whole{.statement = statement};
    for (std::size_t i = 0; i < statement.operands.size(); ++i) {
        whole.operands.push_back(static_cast<int>(i));
    }
    return {whole};
}

}  // namespace dlprim
