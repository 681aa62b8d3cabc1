#include "primitives/nest/formula.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "lang/lexer.h"
#include "lang/parser.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

// Bound of every number: sums of products of two never overflow.
constexpr std::int64_t kMost = std::int64_t{1} << 31;

Access access_of(std::string_view text, const Expression& read, const Constants& constants) {
    if (read.kind != Kind::read)
        refuse_at(text, read.position, "The factor is no read of a tensor");
    Access made{.tensor = read.name, .may_lie_outside = read.may_lie_outside};
    for (const Expression& place : read.operands) {
        auto sum = affine_of(place, constants);
        const auto fits = [](std::int64_t it) { return it >= -kMost && it <= kMost; };
        const auto term_fits = [&](const AffineTerm& it) { return fits(it.factor); };
        if (!sum || !fits(sum->constant) ||
            !std::all_of(sum->terms.begin(), sum->terms.end(), term_fits)) {
            refuse_at(text, place.position,
                      "The place is no sum of indices times numbers of at most 2^31");
        }
        made.places.push_back(std::move(*sum));
    }
    return made;
}

// Drivers write products down as a few texts, again for every shape.
const Statement& parsed(std::string_view text) {
    constexpr std::size_t kMostTexts = 64;
    static thread_local std::map<std::string, Statement, std::less<>> known;
    const auto found = known.find(text);
    if (found != known.end()) return found->second;
    if (known.size() >= kMostTexts) known.clear();
    return known.emplace(text, parse_statement(text)).first->second;
}

}  // namespace

ProductFormula parse_product(std::string_view text, const Constants& constants) {
    const Statement& statement = parsed(text);
    if (statement.reduction != Reduction::sum || !statement.ranges.empty() ||
        !statement.exists.empty()) {
        refuse_at(text, statement.position, "The formula is no sum with '+=' or '+=!' alone");
    }
    ProductFormula made{.text = std::string(text),
                        .result = access_of(text, statement.target, constants),
                        .adds_to_result = !statement.initializes};
    const Expression& value = statement.value;
    if (value.kind == Kind::number && value.number == 0) return made;
    if (value.kind == Kind::call && value.name == "*") {
        made.factors.push_back(access_of(text, value.operands[0], constants));
        made.factors.push_back(access_of(text, value.operands[1], constants));
    } else {
        made.factors.push_back(access_of(text, value, constants));
    }
    return made;
}

}  // namespace dlprim
