#include "lang/gradients/printed.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "lang/functions.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

constexpr int kSign = 6, kBase = 7;  // bind tighter than operators with two operands

int tightness_of(const Expression& it) {
    if (it.kind != Kind::call) return kBase;
    if (it.name == "?:") return 0;
    if (it.operands.size() == 1 && (it.name == "-" || it.name == "!")) return kSign;
    const int found = it.operands.size() == 2 ? tightness(it.name) : 0;
    return found > 0 ? found : kBase;
}

std::string at_least(int least, const Expression& it) {
    return tightness_of(it) < least ? "(" + text_of(it) + ")" : text_of(it);
}

std::string text_of_number(const Expression& it) {
    std::array<char, 64> digits{};
    const auto end = it.is_integer ? std::to_chars(digits.begin(), digits.end(),
                                                   static_cast<std::int64_t>(it.number))
                                   : std::to_chars(digits.begin(), digits.end(), it.number);
    std::string text(digits.data(), end.ptr);
    if (!it.is_integer && text.find_first_of(".e") == std::string::npos) text += ".0";
    return text;
}

std::string listed(const std::vector<Expression>& all) {
    std::string text;
    for (const Expression& it : all) text += (text.empty() ? "" : ",") + text_of(it);
    return "(" + text + ")";
}

const char* assignment_of(const Statement& it) {
    switch (it.reduction) {
        case Reduction::none: return " = ";
        case Reduction::sum: return it.initializes ? " +=! " : " += ";
        case Reduction::product: return it.initializes ? " *=! " : " *= ";
        case Reduction::largest: return it.initializes ? " max=! " : " max= ";
        case Reduction::smallest: return it.initializes ? " min=! " : " min= ";
    }
    return "";
}

}  // namespace

std::string text_of(const Expression& it) {
    if (it.kind == Kind::number) return text_of_number(it);
    if (it.kind == Kind::name) return it.name;
    if (it.kind == Kind::read) {
        return it.name + (it.may_lie_outside ? "?" : "") + listed(it.operands);
    }
    const int tight = tightness_of(it);
    if (it.name == "?:") {
        return "(" + text_of(it.operands[0]) + ") ? " + at_least(1, it.operands[1]) + " : " +
               text_of(it.operands[2]);
    }
    if (tight == kBase) return it.name + listed(it.operands);
    if (tight == kSign) return it.name + at_least(kSign, it.operands[0]);
    return at_least(tight, it.operands[0]) + " " + it.name + " " +
           at_least(tight + 1, it.operands[1]);
}

std::string text_of(const Statement& it) {
    std::string text = it.result;
    if (!it.target.operands.empty()) text += listed(it.target.operands);
    text += assignment_of(it) + text_of(it.value);
    const char* separator = " where ";
    for (const Expression& read : it.exists) {
        text += separator + ("exists " + text_of(read));
        separator = ", ";
    }
    for (const RangeClause& range : it.ranges) {
        text += separator + range.index + " in " + text_of(range.first) + ":" + text_of(range.end);
        separator = ", ";
    }
    return text;
}

std::string text_of(const Definition& it) {
    std::string parameters, returns;
    for (const Parameter& parameter : it.parameters) {
        parameters += (parameters.empty() ? "" : ", ") + parameter.type;
        if (!parameter.dimensions.empty()) parameters += listed(parameter.dimensions);
        parameters += " " + parameter.name;
    }
    for (const std::string& name : it.returns) returns += (returns.empty() ? "" : ", ") + name;
    std::string text = "def " + it.name + "(" + parameters + ") -> (" + returns + ") {\n";
    for (const Statement& statement : it.statements) text += "    " + text_of(statement) + "\n";
    return text + "}\n";
}

Expression number_of(std::int64_t number) {
    Expression made{.number = std::abs(static_cast<double>(number)), .is_integer = true};
    return number < 0 ? call_of("-", {std::move(made)}) : made;
}

Expression named(const std::string& name) { return {.kind = Kind::name, .name = name}; }

Expression read_of(const std::string& tensor, const std::vector<std::string>& indices) {
    Expression made = named(tensor);
    if (!indices.empty()) made.kind = Kind::read;
    for (const std::string& index : indices) made.operands.push_back(named(index));
    return made;
}

Expression placed_at(const Statement& statement, const std::string& tensor) {
    Expression made = statement.target;
    made.name = tensor;
    if (made.operands.empty()) made.kind = Kind::name;
    return made;
}

Expression expression_of(const AffineSum& sum) {
    Expression made = number_of(sum.constant);
    bool is_empty = true;
    const auto join = [&](bool negative, Expression next) {
        if (is_empty) {
            made = negative ? call_of("-", {std::move(next)}) : std::move(next);
        } else {
            made = call_of(negative ? "-" : "+", {std::move(made), std::move(next)});
        }
        is_empty = false;
    };
    for (const bool negative : {false, true}) {
        for (const AffineTerm& term : sum.terms) {
            if ((term.factor < 0) != negative) continue;
            const std::int64_t factor = negative ? -term.factor : term.factor;
            join(negative, factor == 1 ? named(term.index)
                                       : call_of("*", {number_of(factor), named(term.index)}));
        }
    }
    if (!is_empty && sum.constant != 0) {
        join(sum.constant < 0, number_of(sum.constant < 0 ? -sum.constant : sum.constant));
    }
    return made;
}

}  // namespace dlprim
