#include "primitives/statements/row_expression.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "lang/functions.h"
#include "rows/functions/elementary.h"

namespace dlprim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kHighestPower = 4;  // that products make; roundings add up

[[noreturn]] void refuse(const Expression& it) {
    throw std::invalid_argument("the row engine cannot compute \"" + it.name + "\" of " +
                                std::to_string(it.operands.size()) +
                                " operands, expected a function that it has");
}

bool is_comparison(const std::string& name) {
    constexpr std::array<std::string_view, 6> names = {"<", "<=", ">", ">=", "==", "!="};
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_logical(const Expression& it) {
    return it.kind == Expression::Kind::call &&
           (is_comparison(it.name) || it.name == "&&" || it.name == "||" || it.name == "!");
}

}  // namespace

bool is_integer_value(const Expression& it) {
    if (it.kind != Expression::Kind::call) return it.is_integer;
    if (is_logical(it)) return true;
    constexpr std::array<std::string_view, 7> names = {"+", "-", "*", "/", "%", "min", "max"};
    const bool keeps = std::find(names.begin(), names.end(), it.name) != names.end();
    const auto first = it.operands.begin() + (it.name == "?:" ? 1 : 0);
    return (keeps || it.name == "?:") && std::all_of(first, it.operands.end(), is_integer_value);
}

namespace {

bool is_extreme(const std::string& name) {
    return name == "fmax" || name == "fmin" || name == "max" || name == "min";
}

using One = RowValue (*)(RowValue);
using Two = RowValue (*)(RowValue, RowValue);

const std::map<std::string_view, One>& functions_of_one() {
    static const std::map<std::string_view, One> all = {
        {"-", [](RowValue x) { return -x; }},
        {"acos", acos},
        {"acosh", acosh},
        {"asin", asin},
        {"asinh", asinh},
        {"atan", atan},
        {"atanh", atanh},
        {"cbrt", cbrt},
        {"ceil", ceil},
        {"cos", cos},
        {"cosh", cosh},
        {"cospi", cospi},
        {"erf", erf},
        {"erfc", erfc},
        {"exp", exp},
        {"exp10", exp10},
        {"exp2", exp2},
        {"expm1", expm1},
        {"fabs", abs},
        {"float", [](RowValue x) { return x; }},
        {"float32", [](RowValue x) { return x; }},
        {"floor", floor},
        {"log", log},
        {"log10", log10},
        {"log1p", log1p},
        {"log2", log2},
        {"mish", mish},
        {"normcdf", normcdf},
        {"rcbrt", [](RowValue x) { return 1.0F / cbrt(x); }},
        {"rint", nearest},
        {"rsqrt", [](RowValue x) { return 1.0F / sqrt(x); }},
        {"sign", sign},
        {"sin", sin},
        {"sinh", sinh},
        {"sinpi", sinpi},
        {"softplus", softplus},
        {"sqrt", sqrt},
        {"tan", tan},
        {"trunc", trunc},
    };
    return all;
}

template <Reduction reduction>
RowValue joined_by(RowValue a, RowValue b) {
    return joined(reduction, a, b);
}

const std::map<std::string_view, Two>& functions_of_two() {
    static const std::map<std::string_view, Two> all = {
        {"%", remainder},
        {"*", [](RowValue a, RowValue b) { return a * b; }},
        {"+", [](RowValue a, RowValue b) { return a + b; }},
        {"-", [](RowValue a, RowValue b) { return a - b; }},
        {"/", [](RowValue a, RowValue b) { return a / b; }},
        {"atan2", atan2},
        {"copysign", copysign},
        {"fdim", fdim},
        {"fdivide", [](RowValue a, RowValue b) { return a / b; }},
        {"fmod", fmod},
        {"hypot", hypot},
        {"rhypot", [](RowValue a, RowValue b) { return 1.0F / hypot(a, b); }},
        {name_of(Reduction::largest), joined_by<Reduction::largest>},
        {name_of(Reduction::smallest), joined_by<Reduction::smallest>},
    };
    return all;
}

// A function's name where it has several.
std::string_view name_in_table(const Expression& it) {
    const Function* const function = find_function(it.name);
    return function == nullptr ? std::string_view(it.name) : function->name;
}

class Translation {
public:
    Translation(RowBuilder& row, const std::vector<RowValue>& reads) : row_(row), reads_(reads) {}

    RowValue value(const Expression& it) {
        switch (it.kind) {
            case Expression::Kind::number: return row_.constant(static_cast<float>(it.number));
            case Expression::Kind::read: return reads_.at(static_cast<std::size_t>(it.number));
            case Expression::Kind::name: refuse(it);
            case Expression::Kind::call: break;
        }
        const auto& of = it.operands;
        if (it.name == "?:") return chosen(of.at(0), value(of.at(1)), value(of.at(2)));
        if (is_logical(it)) return chosen(it, row_.constant(1), row_.constant(0));
        if (name_in_table(it) == "pow" && of.size() == 2) return power(it);
        if (it.name == "fma" && of.size() == 3) {
            return multiply_add(value(of[0]), value(of[1]), value(of[2]));
        }
        if (of.size() == 2 && (it.name == "/" || it.name == "%") && is_integer_value(it)) {
            return quotient(it);
        }
        if (of.size() == 2 && is_extreme(it.name)) return extreme(it);
        if (of.size() == 1 && it.name.starts_with("int") && is_integer_value(of[0]))
            return value(of[0]);
        return called(it);
    }

private:
    RowValue called(const Expression& it) {
        const std::string_view name = name_in_table(it);
        if (it.operands.size() == 1) {
            const RowValue x = value(it.operands[0]);
            const auto found = functions_of_one().find(name);
            if (found != functions_of_one().end()) return found->second(x);
            const auto* const activation = std::ranges::find(kActivationNames, name);
            if (activation != kActivationNames.end() && name != "none") {
                const auto number = activation - kActivationNames.begin();
                return activated(static_cast<Activation>(number), x);
            }
        }
        if (it.operands.size() == 2) {
            const auto found = functions_of_two().find(name);
            if (found != functions_of_two().end()) {
                return found->second(value(it.operands[0]), value(it.operands[1]));
            }
        }
        refuse(it);
    }

    RowValue chosen(const Expression& condition, RowValue then, RowValue otherwise) {
        const auto& of = condition.operands;
        const std::string& name = condition.name;
        if (!is_logical(condition)) return select(value(condition) == 0.0F, otherwise, then);
        if (name == "!") return chosen(of.at(0), otherwise, then);
        if (name == "&&") return chosen(of[0], chosen(of.at(1), then, otherwise), otherwise);
        if (name == "||") return chosen(of[0], then, chosen(of.at(1), then, otherwise));
        const RowValue a = value(of.at(0)), b = value(of.at(1));
        if (name == "<") return select(a < b, then, otherwise);
        if (name == "<=") return select(a <= b, then, otherwise);
        if (name == ">") return select(b < a, then, otherwise);
        if (name == ">=") return select(b <= a, then, otherwise);
        if (name == "==") return select(a == b, then, otherwise);
        return select(a == b, otherwise, then);
    }

    // C's, which pass NaN over: larger() and smaller() are their second of two if one is NaN.
    RowValue extreme(const Expression& it) {
        RowValue a = value(it.operands[0]), b = value(it.operands[1]);
        const auto is_number = [&](std::size_t i) {
            return it.operands[i].kind == Expression::Kind::number;
        };
        if (is_number(0)) std::swap(a, b);
        const RowValue found = it.name.ends_with("max") ? larger(a, b) : smaller(a, b);
        return is_number(0) || is_number(1) ? found : select(is_nan(b), a, found);
    }

    RowValue quotient(const Expression& it) {
        const RowValue a = value(it.operands[0]), b = value(it.operands[1]);
        const RowValue whole = floor(a / b);
        return it.name == "/" ? whole : a - whole * b;
    }

    RowValue power(const Expression& it) {
        Expression exponent = it.operands[1];
        const bool is_negative = exponent.kind == Expression::Kind::call && exponent.name == "-" &&
                                 exponent.operands.size() == 1;
        if (is_negative) exponent = Expression(exponent.operands[0]);
        const double number = exponent.number;
        const bool is_product = exponent.kind == Expression::Kind::number &&
                                std::trunc(number) == number && std::fabs(number) <= kHighestPower;
        if (!is_product) return pow(value(it.operands[0]), value(it.operands[1]));
        RowValue factor = value(it.operands[0]), product = row_.constant(1);
        for (auto rest = static_cast<int>(std::fabs(number)); rest > 0; rest /= 2) {
            if (rest % 2 == 1) product = product * factor;
            if (rest > 1) factor = factor * factor;
        }
        return is_negative != (number < 0) ? 1.0F / product : product;
    }

    RowBuilder& row_;
    const std::vector<RowValue>& reads_;
};

}  // namespace

RowValue row_value(RowBuilder& row, const Expression& value, const std::vector<RowValue>& reads) {
    return Translation(row, reads).value(value);
}

RowValue joined(Reduction reduction, RowValue before, RowValue next) {
    switch (reduction) {
        case Reduction::none: return next;
        case Reduction::sum: return before + next;
        case Reduction::product: return before * next;
        case Reduction::largest: return select(is_nan(before), before, larger(before, next));
        case Reduction::smallest: return select(is_nan(before), before, smaller(before, next));
    }
    return next;
}

RowValue joined_row(Reduction reduction, RowValue x) {
    if (reduction == Reduction::sum) return sum(x);
    const RowValue holds_nan = highest(select(is_nan(x), 1.0F, 0.0F));
    const RowValue found = reduction == Reduction::largest ? highest(x) : lowest(x);
    return select(0.0F < holds_nan, kNan, found);
}

float identity_of(Reduction reduction) {
    switch (reduction) {
        case Reduction::product: return 1;
        case Reduction::largest: return -kInfinity;
        case Reduction::smallest: return kInfinity;
        default: return 0;
    }
}

const char* name_of(Reduction reduction) {
    switch (reduction) {
        case Reduction::none: return "=";
        case Reduction::sum: return "+";
        case Reduction::product: return "*";
        case Reduction::largest: return "max=";
        case Reduction::smallest: return "min=";
    }
    return "";
}

}  // namespace dlprim
