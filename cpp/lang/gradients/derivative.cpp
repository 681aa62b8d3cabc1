#include "lang/gradients/derivative.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "lang/functions.h"
#include "lang/gradients/printed.h"
#include "lang/lexer.h"
#include "lang/parser.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

constexpr std::int64_t kMostNodes = 1 << 16;  // of all shares of a statement

struct Derivative {
    std::string_view function;
    // Of each operand: the gradient d of the function times its derivative by the operand, which
    // are called a, b and c. Nothing: zero.
    std::string_view shares[3];
};

constexpr Derivative kDerivatives[] = {
    {"%", {"d", "-d * floor(a / b)"}},
    {"*", {"d * b", "d * a"}},
    {"+", {"d", "d"}},
    {"-", {"d", "-d"}},
    {"/", {"d / b", "-d * a / (b * b)"}},
    {"acos", {"-d * rsqrt(1 - a * a)"}},
    {"acosh", {"d * rsqrt(a - 1) * rsqrt(a + 1)"}},
    {"asin", {"d * rsqrt(1 - a * a)"}},
    {"asinh", {"d * rsqrt(a * a + 1)"}},
    {"atan", {"d / (a * a + 1)"}},
    {"atan2", {"d * b / (a * a + b * b)", "-d * a / (a * a + b * b)"}},
    {"atanh", {"d / (1 - a * a)"}},
    {"bfloat16", {"d"}},
    {"cbrt", {"d / (3 * cbrt(a) * cbrt(a))"}},
    {"ceil", {}},
    {"copysign", {"d * copysign(1, a) * copysign(1, b)"}},
    {"cos", {"-d * sin(a)"}},
    {"cosh", {"d * sinh(a)"}},
    {"cospi", {"-3.141592653589793 * d * sinpi(a)"}},
    {"double", {"d"}},
    {"erf", {"1.1283791670955126 * d * exp(-a * a)"}},
    {"erfc", {"-1.1283791670955126 * d * exp(-a * a)"}},
    {"exp", {"d * exp(a)"}},
    {"exp10", {"2.302585092994046 * d * exp10(a)"}},
    {"exp2", {"0.6931471805599453 * d * exp2(a)"}},
    {"expm1", {"d * exp(a)"}},
    {"fabs", {"d * (a > 0 ? 1 : a < 0 ? -1 : 0)"}},
    {"fdim", {"a > b ? d : 0", "a > b ? -d : 0"}},
    {"fdivide", {"d / b", "-d * a / (b * b)"}},
    {"float", {"d"}},
    {"float16", {"d"}},
    {"float32", {"d"}},
    {"float64", {"d"}},
    {"floor", {}},
    {"fma", {"d * b", "d * a", "d"}},
    {"fmod", {"d", "-d * trunc(a / b)"}},
    // The normal distribution function is gelu(a) / a, which rows compute.
    {"gelu", {"d * ((a == 0 ? 0.5 : gelu(a) / a) + 0.3989422804014327 * a * exp(-0.5 * a * a))"}},
    // Where |a| is 10 or more it is 0 or a, and cubes go to infinity beyond.
    {"gelu_tanh",
     {"fabs(a) < 10 ? d * (sigmoid(1.5957691216057308 * (a + 0.044715 * a * a * a)) + "
      "1.5957691216057308 * a * (1 + 0.134145 * a * a) * "
      "sigmoid(1.5957691216057308 * (a + 0.044715 * a * a * a)) * "
      "sigmoid(-1.5957691216057308 * (a + 0.044715 * a * a * a))) : a < 0 ? 0 : d"}},
    {"half", {"d"}},
    {"hardsigmoid", {"a > -3 && a < 3 ? 0.16666666666666666 * d : 0"}},
    {"hardswish", {"a > -3 ? (a < 3 ? d * (0.3333333333333333 * a + 0.5) : d) : 0"}},
    {"hypot", {"d * a * rhypot(a, b)", "d * b * rhypot(a, b)"}},
    {"log", {"d / a"}},
    {"log10", {"0.4342944819032518 * d / a"}},
    {"log1p", {"d / (1 + a)"}},
    {"log2", {"1.4426950408889634 * d / a"}},
    {"mish",
     {"d * (tanh(softplus(a)) + a * sigmoid(a) * (1 - tanh(softplus(a)) * tanh(softplus(a))))"}},
    {"normcdf", {"0.3989422804014327 * d * exp(-0.5 * a * a)"}},
    {"pow", {"d * b * pow(a, b - 1)", "a > 0 ? d * pow(a, b) * log(a) : 0"}},
    {"rcbrt", {"-d * rcbrt(a) / (3 * a)"}},
    {"relu", {"a > 0 ? d : 0"}},
    {"relu6", {"a > 0 && a < 6 ? d : 0"}},
    {"rhypot",
     {"-d * a * rhypot(a, b) * rhypot(a, b) * rhypot(a, b)",
      "-d * b * rhypot(a, b) * rhypot(a, b) * rhypot(a, b)"}},
    {"rint", {}},
    {"rsqrt", {"-0.5 * d * rsqrt(a) / a"}},
    {"sigmoid", {"d * sigmoid(a) * (1 - sigmoid(a))"}},
    {"sign", {}},
    {"sin", {"d * cos(a)"}},
    {"sinh", {"d * cosh(a)"}},
    {"sinpi", {"3.141592653589793 * d * cospi(a)"}},
    {"softplus", {"d * sigmoid(a)"}},
    {"sqrt", {"0.5 * d * rsqrt(a)"}},
    {"swish", {"d * sigmoid(a) * (1 + a * (1 - sigmoid(a)))"}},
    {"tan", {"d / (cos(a) * cos(a))"}},
    {"tanh", {"d * (1 - tanh(a) * tanh(a))"}},
    {"trunc", {}},
};
static_assert(std::ranges::is_sorted(kDerivatives, {}, &Derivative::function));

std::optional<std::int64_t> integer_in(const Expression& it) {
    if (it.kind == Kind::call && it.name == "-" && it.operands.size() == 1) {
        const auto found = integer_in(it.operands[0]);
        return found ? std::optional(-*found) : found;
    }
    if (it.kind != Kind::number || !it.is_integer) return {};
    return static_cast<std::int64_t>(it.number);
}

std::int64_t nodes_of(const Expression& tree) {
    std::int64_t count = 1;
    for (const Expression& operand : tree.operands) count += nodes_of(operand);
    return count;
}

// The names of a formula of kDerivatives replaced.
Expression filled(const Expression& formula, const Expression& call, const Expression& gradient) {
    if (formula.kind == Kind::name) {
        return formula.name == "d"
                   ? gradient
                   : call.operands.at(static_cast<std::size_t>(formula.name.front() - 'a'));
    }
    Expression made = formula;
    for (Expression& operand : made.operands) operand = filled(operand, call, gradient);
    return folded(std::move(made));
}

bool chooses(const std::string& name) {
    return name == "max" || name == "min" || name == "fmax" || name == "fmin";
}

class Shares {
public:
    Shares(const std::function<bool(const Expression&)>& is_sought, const std::string& text)
        : is_sought_(is_sought), text_(text) {}

    void add(const Expression& it, const Expression& gradient) {
        if (!depends(it)) return;
        if (it.kind != Kind::call) return add_read(it, gradient);
        if (it.name == "?:") {
            return add_choice(it.operands[0], it.operands[1], it.operands[2], gradient);
        }
        if (chooses(it.name)) return add_extreme(it, gradient);
        const auto& [name, operands, rule, value] = *find_function(it.name);
        using Rule = Function::Rule;
        if (rule == Rule::compares || rule == Rule::logic ||
            (rule == Rule::cast && type_named(it.name) != ValueType::real)) {
            return;
        }
        const auto* const found =
            std::ranges::lower_bound(kDerivatives, name, {}, &Derivative::function);
        if (found == std::end(kDerivatives) || found->function != name) {
            refuse_at(text_, it.position, "The function ", it.name,
                      " has no derivative among the functions of formulas, expected another one");
        }
        for (std::size_t i = 0; i < it.operands.size(); ++i) {
            std::string_view share = found->shares[i];
            if (it.operands.size() == 1 && it.name == "-") share = "-d";
            if (share.empty() || !depends(it.operands[i])) continue;
            const Statement formula = parse_statement("d = " + std::string(share));
            add(it.operands[i], filled(formula.value, it, gradient));
        }
    }

    std::vector<GradientShare> take() { return std::move(made_); }

private:
    bool depends(const Expression& it) const {
        if (it.kind == Kind::name || it.kind == Kind::read) return is_sought_(it);
        return std::ranges::any_of(it.operands, [&](const Expression& of) { return depends(of); });
    }

    void add_read(const Expression& it, Expression gradient) {
        nodes_ += nodes_of(gradient);
        if (nodes_ > kMostNodes) {
            refuse_at(text_, it.position, "The gradient would have more than ", kMostNodes,
                      " names and operators here, expected a shorter statement");
        }
        for (auto choice = choices_.rbegin(); choice != choices_.rend(); ++choice) {
            std::vector<Expression> of = {choice->condition, number_of(0), number_of(0)};
            of[choice->is_taken ? 1 : 2] = std::move(gradient);
            gradient = call_of("?:", std::move(of));
        }
        const std::string text = text_of(it);
        const auto same = std::ranges::find_if(
            made_, [&](const GradientShare& share) { return text_of(share.read) == text; });
        if (same == made_.end()) {
            made_.push_back({it, std::move(gradient)});
        } else if (text_of(same->value) == text_of(gradient)) {
            same->value = call_of("*", {number_of(2), std::move(gradient)});
        } else {
            same->value = call_of("+", {std::move(same->value), std::move(gradient)});
        }
    }

    // The condition stays in front of all that a branch reads.
    void add_choice(const Expression& condition, const Expression& then,
                    const Expression& otherwise, const Expression& gradient) {
        choices_.push_back({condition, true});
        add(then, gradient);
        choices_.back().is_taken = false;
        add(otherwise, gradient);
        choices_.pop_back();
    }

    void add_extreme(const Expression& it, const Expression& gradient) {
        const bool largest = it.name.ends_with("max");
        const Expression &a = it.operands[0], &b = it.operands[1];
        if (!is_number(a) && !is_number(b)) {
            return add_choice(call_of(largest ? ">=" : "<=", {a, b}), a, b, gradient);
        }
        const Expression& sought = is_number(b) ? a : b;
        const Expression& other = is_number(b) ? b : a;
        add_choice(call_of(largest ? ">" : "<", {sought, other}), sought, other, gradient);
    }

    static bool is_number(const Expression& it) {
        return it.kind != Kind::name && it.kind != Kind::read &&
               std::ranges::all_of(it.operands, is_number);
    }

    struct Choice {
        Expression condition;
        bool is_taken;
    };

    const std::function<bool(const Expression&)>& is_sought_;
    const std::string& text_;
    std::vector<Choice> choices_;
    std::int64_t nodes_ = 0;  // of what was made
    std::vector<GradientShare> made_;
};

}  // namespace

Expression folded(Expression it) {
    if (it.kind != Kind::call || it.operands.size() != 2) return it;
    const auto a = integer_in(it.operands[0]), b = integer_in(it.operands[1]);
    if (it.name == "-" && a && b) return number_of(*a - *b);
    if (it.name == "*" && a == 1) return std::move(it.operands[1]);
    if ((it.name == "*" || it.name == "pow") && b == 1) return Expression(it.operands[0]);
    return it;
}

std::vector<GradientShare> gradient_shares(const Expression& expression, const Expression& gradient,
                                           const std::function<bool(const Expression&)>& is_sought,
                                           const std::string& text) {
    Shares shares(is_sought, text);
    shares.add(expression, gradient);
    return shares.take();
}

}  // namespace dlprim
