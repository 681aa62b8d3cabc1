#include "lang/affine.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace dlprim {
namespace {

using Kind = Expression::Kind;
using MaybeSum = std::optional<AffineSum>;

[[noreturn]] void refuse_size() {
    throw std::invalid_argument("A number of the formula does not fit 64 bits, expected less.");
}

MaybeSum of_numbers(const std::string& name, std::int64_t a, std::int64_t b) {
    if (name == "min") return AffineSum{{}, std::min(a, b)};
    if (name == "max") return AffineSum{{}, std::max(a, b)};
    if (b == 0 || (name != "/" && name != "%")) return {};
    const std::int64_t quotient = floor_quotient(a, b);
    return AffineSum{{}, name == "/" ? quotient : a - checked_product(quotient, b)};
}

MaybeSum of_call(const Expression& call, const Constants& constants) {
    const std::string& name = call.name;
    const bool negated = name == "-" && call.operands.size() == 1;
    if (!negated && call.operands.size() != 2) return {};
    MaybeSum a = affine_of(call.operands[0], constants);
    if (!a) return {};
    if (negated) return scaled(std::move(*a), -1);
    MaybeSum b = affine_of(call.operands[1], constants);
    if (!b) return {};
    if (name == "+") return added(std::move(*a), *b);
    if (name == "-") return added(std::move(*a), scaled(std::move(*b), -1));
    if (name == "*" && b->terms.empty()) return scaled(std::move(*a), b->constant);
    if (name == "*" && a->terms.empty()) return scaled(std::move(*b), a->constant);
    if (!a->terms.empty() || !b->terms.empty()) return {};
    return of_numbers(name, a->constant, b->constant);
}

}  // namespace

AffineSum scaled(AffineSum sum, std::int64_t factor) {
    for (AffineTerm& term : sum.terms) term.factor = checked_product(term.factor, factor);
    sum.constant = checked_product(sum.constant, factor);
    std::erase_if(sum.terms, [](const AffineTerm& term) { return term.factor == 0; });
    return sum;
}

AffineSum added(AffineSum sum, const AffineSum& other) {
    for (const AffineTerm& term : other.terms) {
        const auto same =
            std::find_if(sum.terms.begin(), sum.terms.end(),
                         [&](const AffineTerm& it) { return it.index == term.index; });
        if (same == sum.terms.end()) {
            sum.terms.push_back(term);
        } else {
            same->factor = checked_sum(same->factor, term.factor);
        }
    }
    sum.constant = checked_sum(sum.constant, other.constant);
    std::erase_if(sum.terms, [](const AffineTerm& term) { return term.factor == 0; });
    return sum;
}

std::optional<AffineSum> affine_of(const Expression& expression, const Constants& constants) {
    switch (expression.kind) {
        case Kind::number:
            if (!expression.is_integer) return {};
            return AffineSum{{}, static_cast<std::int64_t>(expression.number)};
        case Kind::name: {
            const auto constant = constants.find(expression.name);
            if (constant != constants.end()) return AffineSum{{}, constant->second};
            return AffineSum{{{1, expression.name}}, 0};
        }
        case Kind::call: return of_call(expression, constants);
        case Kind::read: return {};
    }
    return {};
}

std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) refuse_size();
    return sum;
}

std::int64_t checked_product(std::int64_t a, std::int64_t b) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) refuse_size();
    return product;
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
    if (b == -1) return checked_product(a, -1);
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

}  // namespace dlprim
