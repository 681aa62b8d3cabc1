#include "primitives/mapping/product_end.h"

#include <algorithm>
#include <cstddef>

#include "lang/functions.h"

namespace dlprim {
namespace {

constexpr std::size_t kNone = ~std::size_t{0};

std::size_t position_of(const std::string& name, const std::vector<IndexRange>& indices) {
    const auto found = std::find_if(indices.begin(), indices.end(),
                                    [&](const IndexRange& it) { return it.name == name; });
    return found == indices.end() ? kNone : static_cast<std::size_t>(found - indices.begin());
}

// Adds statements to an end, for as long as that is possible.
class EndBuilder {
public:
    explicit EndBuilder(const BoundStatement& product) : product_(product) {
        made_.strides.resize(product.indices.size());
    }

    bool add(const NextStatement& next) {
        next_ = &next;
        // The kernel adds first.
        return made_.end.activation == Activation::none && is_in_place() &&
               takes(next.statement.value);
    }

    FoundEnd take() { return std::move(made_); }

private:
    bool is_in_place() const {
        const BoundStatement& it = next_->statement;
        const BoundOperand &from = product_.result, &to = it.result;
        if (it.reduction != Reduction::none || from.dtype != to.dtype || from.offset != to.offset) {
            return false;
        }
        std::size_t kept = 0;
        for (std::size_t i = 0; i < product_.indices.size(); ++i) {
            const IndexRange& index = product_.indices[i];
            if (index.reduced) continue;
            const std::size_t at = position_of(index.name, it.indices);
            if (at == kNone || it.indices[at].extent != index.extent ||
                to.strides[at] != from.strides[i]) {
                return false;
            }
            ++kept;
        }
        return kept == it.indices.size();
    }

    bool takes(const Expression& value) {
        if (value.kind == Expression::Kind::read) return is_result(value);
        if (value.kind != Expression::Kind::call) return false;
        const auto& of = value.operands;
        if (value.name == "+" && of.size() == 2) {
            return (is_result(of[0]) && takes_bias(of[1])) ||
                   (is_result(of[1]) && takes_bias(of[0]));
        }
        const Activation found = activation_of(value);
        if (found == Activation::none || !takes(of.front())) return false;
        // Of two functions the inner one is none that a bias was added for.
        if (made_.end.activation != Activation::none) return false;
        made_.end.activation = found;
        return true;
    }

    static Activation activation_of(const Expression& call) {
        const Function* const function = find_function(call.name);
        if (function == nullptr || call.operands.size() != 1) return Activation::none;
        const auto found = std::ranges::find(kActivationNames, function->name);
        const bool has = found != kActivationNames.end();
        return has ? static_cast<Activation>(found - kActivationNames.begin()) : Activation::none;
    }

    const BoundOperand& operand(const Expression& read) const {
        return next_->statement.operands[static_cast<std::size_t>(read.number)];
    }

    bool is_result(const Expression& it) const {
        if (it.kind != Expression::Kind::read) return false;
        const BoundOperand &read = operand(it), &result = next_->statement.result;
        return next_->is_result[static_cast<std::size_t>(it.number)] &&
               read.dtype == result.dtype && read.offset == result.offset &&
               read.strides == result.strides;
    }

    bool takes_bias(const Expression& it) {
        if (it.kind != Expression::Kind::read || made_.end.bias) return false;
        if (next_->is_result[static_cast<std::size_t>(it.number)]) return false;
        const BoundOperand& read = operand(it);
        if (is_integer(read.dtype)) return false;
        made_.end.bias = true;
        made_.end.bias_type = read.dtype;
        made_.end.bias_offset = read.offset;
        for (std::size_t i = 0; i < product_.indices.size(); ++i) {
            const std::size_t at = position_of(product_.indices[i].name, next_->statement.indices);
            if (at != kNone) made_.strides[i] = read.strides[at];
        }
        return true;
    }

    const BoundStatement& product_;
    const NextStatement* next_ = nullptr;
    FoundEnd made_;
};

}  // namespace

std::optional<FoundEnd> end_of(const BoundStatement& product,
                               const std::vector<NextStatement>& next) {
    EndBuilder builder(product);
    const bool all = std::all_of(next.begin(), next.end(),
                                 [&](const NextStatement& it) { return builder.add(it); });
    if (!all) return {};
    return builder.take();
}

}  // namespace dlprim
