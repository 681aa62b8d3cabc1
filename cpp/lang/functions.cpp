#include "lang/functions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <string>

namespace dlprim {
namespace {

using Rule = Function::Rule;
using X = std::span<const double>;

constexpr double kPi = std::numbers::pi;

double floor_divided(double a, double b) { return std::floor(a / b); }
double truncated(X x) { return std::trunc(x[0]); }
double same(X x) { return x[0]; }
double softplus(X x) { return std::fmax(x[0], 0.0) + std::log1p(std::exp(-std::fabs(x[0]))); }

double relu6(double x) { return std::fmin(std::fmax(x, 0.0), 6.0); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// In the order of their names.
constexpr Function kFunctions[] = {
    {"!", 1, Rule::logic, [](X x) -> double { return x[0] == 0; }},
    {"!=", 2, Rule::compares, [](X x) -> double { return x[0] != x[1]; }},
    {"%", 2, Rule::promotes, [](X x) { return x[0] - x[1] * floor_divided(x[0], x[1]); }},
    {"&&", 2, Rule::logic, [](X x) -> double { return x[0] != 0 && x[1] != 0; }},
    {"*", 2, Rule::promotes, [](X x) { return x[0] * x[1]; }},
    {"+", 2, Rule::promotes, [](X x) { return x[0] + x[1]; }},
    {"-", 2, Rule::promotes, [](X x) { return x.size() == 1 ? -x[0] : x[0] - x[1]; }},
    {"/", 2, Rule::promotes, [](X x) { return x[0] / x[1]; }},
    {"<", 2, Rule::compares, [](X x) -> double { return x[0] < x[1]; }},
    {"<=", 2, Rule::compares, [](X x) -> double { return x[0] <= x[1]; }},
    {"==", 2, Rule::compares, [](X x) -> double { return x[0] == x[1]; }},
    {">", 2, Rule::compares, [](X x) -> double { return x[0] > x[1]; }},
    {">=", 2, Rule::compares, [](X x) -> double { return x[0] >= x[1]; }},
    {"?:", 3, Rule::selects, [](X x) { return x[0] != 0 ? x[1] : x[2]; }},
    {"acos", 1, Rule::real, [](X x) { return std::acos(x[0]); }},
    {"acosh", 1, Rule::real, [](X x) { return std::acosh(x[0]); }},
    {"asin", 1, Rule::real, [](X x) { return std::asin(x[0]); }},
    {"asinh", 1, Rule::real, [](X x) { return std::asinh(x[0]); }},
    {"atan", 1, Rule::real, [](X x) { return std::atan(x[0]); }},
    {"atan2", 2, Rule::real, [](X x) { return std::atan2(x[0], x[1]); }},
    {"atanh", 1, Rule::real, [](X x) { return std::atanh(x[0]); }},
    {"bfloat16", 1, Rule::cast, same},
    {"bool", 1, Rule::cast, [](X x) -> double { return x[0] != 0; }},
    {"cbrt", 1, Rule::real, [](X x) { return std::cbrt(x[0]); }},
    {"ceil", 1, Rule::real, [](X x) { return std::ceil(x[0]); }},
    {"copysign", 2, Rule::real, [](X x) { return std::copysign(x[0], x[1]); }},
    {"cos", 1, Rule::real, [](X x) { return std::cos(x[0]); }},
    {"cosh", 1, Rule::real, [](X x) { return std::cosh(x[0]); }},
    {"cospi", 1, Rule::real, [](X x) { return std::cos(kPi * x[0]); }},
    {"double", 1, Rule::cast, same},
    {"erf", 1, Rule::real, [](X x) { return std::erf(x[0]); }},
    {"erfc", 1, Rule::real, [](X x) { return std::erfc(x[0]); }},
    {"exp", 1, Rule::real, [](X x) { return std::exp(x[0]); }},
    {"exp10", 1, Rule::real, [](X x) { return std::pow(10, x[0]); }},
    {"exp2", 1, Rule::real, [](X x) { return std::exp2(x[0]); }},
    {"expm1", 1, Rule::real, [](X x) { return std::expm1(x[0]); }},
    {"fabs", 1, Rule::real, [](X x) { return std::fabs(x[0]); }},
    {"fdim", 2, Rule::real, [](X x) { return std::fdim(x[0], x[1]); }},
    {"fdivide", 2, Rule::real, [](X x) { return x[0] / x[1]; }},
    {"float", 1, Rule::cast, same},
    {"float16", 1, Rule::cast, same},
    {"float32", 1, Rule::cast, same},
    {"float64", 1, Rule::cast, same},
    {"floor", 1, Rule::real, [](X x) { return std::floor(x[0]); }},
    {"fma", 3, Rule::real, [](X x) { return std::fma(x[0], x[1], x[2]); }},
    {"fmax", 2, Rule::real, [](X x) { return std::fmax(x[0], x[1]); }},
    {"fmin", 2, Rule::real, [](X x) { return std::fmin(x[0], x[1]); }},
    {"fmod", 2, Rule::real, [](X x) { return std::fmod(x[0], x[1]); }},
    {"gelu", 1, Rule::real,
     [](X x) { return x[0] * 0.5 * std::erfc(-x[0] / std::numbers::sqrt2); }},
    {"gelu_tanh", 1, Rule::real,
     [](X x) {
         return x[0] * sigmoid(2 * std::sqrt(2 / kPi) * (x[0] + 0.044715 * x[0] * x[0] * x[0]));
     }},
    {"half", 1, Rule::cast, same},
    {"hardsigmoid", 1, Rule::real, [](X x) { return relu6(x[0] + 3) / 6; }},
    {"hardswish", 1, Rule::real, [](X x) { return x[0] * relu6(x[0] + 3) / 6; }},
    {"hypot", 2, Rule::real, [](X x) { return std::hypot(x[0], x[1]); }},
    {"int", 1, Rule::cast, truncated},
    {"int16", 1, Rule::cast, truncated},
    {"int32", 1, Rule::cast, truncated},
    {"int64", 1, Rule::cast, truncated},
    {"int8", 1, Rule::cast, truncated},
    {"lgamma", 1, Rule::real, [](X x) { return std::lgamma(x[0]); }},
    {"log", 1, Rule::real, [](X x) { return std::log(x[0]); }},
    {"log10", 1, Rule::real, [](X x) { return std::log10(x[0]); }},
    {"log1p", 1, Rule::real, [](X x) { return std::log1p(x[0]); }},
    {"log2", 1, Rule::real, [](X x) { return std::log2(x[0]); }},
    {"max", 2, Rule::promotes, [](X x) { return x[0] < x[1] ? x[1] : x[0]; }},
    {"min", 2, Rule::promotes, [](X x) { return x[1] < x[0] ? x[1] : x[0]; }},
    {"mish", 1, Rule::real, [](X x) { return x[0] * std::tanh(softplus(x)); }},
    {"normcdf", 1, Rule::real, [](X x) { return 0.5 * std::erfc(-x[0] / std::numbers::sqrt2); }},
    {"pow", 2, Rule::real, [](X x) { return std::pow(x[0], x[1]); }},
    {"rcbrt", 1, Rule::real, [](X x) { return 1 / std::cbrt(x[0]); }},
    {"relu", 1, Rule::real, [](X x) { return std::fmax(x[0], 0.0); }},
    {"relu6", 1, Rule::real, [](X x) { return relu6(x[0]); }},
    {"rhypot", 2, Rule::real, [](X x) { return 1 / std::hypot(x[0], x[1]); }},
    {"rint", 1, Rule::real, [](X x) { return std::rint(x[0]); }},
    {"rsqrt", 1, Rule::real, [](X x) { return 1 / std::sqrt(x[0]); }},
    {"sigmoid", 1, Rule::real, [](X x) { return 1 / (1 + std::exp(-x[0])); }},
    {"sign", 1, Rule::real,
     [](X x) {
         return x[0] > 0 ? 1 : x[0] < 0 ? -1 : x[0] == 0 ? 0 : x[0];
     }},
    {"sin", 1, Rule::real, [](X x) { return std::sin(x[0]); }},
    {"sinh", 1, Rule::real, [](X x) { return std::sinh(x[0]); }},
    {"sinpi", 1, Rule::real, [](X x) { return std::sin(kPi * x[0]); }},
    {"softplus", 1, Rule::real, softplus},
    {"sqrt", 1, Rule::real, [](X x) { return std::sqrt(x[0]); }},
    {"swish", 1, Rule::real, [](X x) { return x[0] * sigmoid(x[0]); }},
    {"tan", 1, Rule::real, [](X x) { return std::tan(x[0]); }},
    {"tanh", 1, Rule::real, [](X x) { return std::tanh(x[0]); }},
    {"tgamma", 1, Rule::real, [](X x) { return std::tgamma(x[0]); }},
    {"trunc", 1, Rule::real, [](X x) { return std::trunc(x[0]); }},
    {"uint16", 1, Rule::cast, truncated},
    {"uint32", 1, Rule::cast, truncated},
    {"uint64", 1, Rule::cast, truncated},
    {"uint8", 1, Rule::cast, truncated},
    {"||", 2, Rule::logic, [](X x) -> double { return x[0] != 0 || x[1] != 0; }},
};
static_assert(std::ranges::is_sorted(kFunctions, {}, &Function::name));

// Other names of the same functions, NumPy's and PyTorch's, in their order.
struct Synonym {
    std::string_view name;
    std::string_view function;
};
constexpr Synonym kSynonyms[] = {
    {"abs", "fabs"},      {"arccos", "acos"}, {"arccosh", "acosh"}, {"arcsin", "asin"},
    {"arcsinh", "asinh"}, {"arctan", "atan"}, {"arctan2", "atan2"}, {"arctanh", "atanh"},
    {"round", "rint"},    {"silu", "swish"},
};
static_assert(std::ranges::is_sorted(kSynonyms, {}, &Synonym::name));

// Names that many a tensor has, so that no function can, in their order.
struct Spelling {
    std::string_view name;
    std::string_view here;
};
constexpr Spelling kSpellings[] = {
    {"absolute", "abs(a)"},
    {"add", "a + b"},
    {"amax", "max=!"},
    {"amin", "min=!"},
    {"clamp", "fmin(fmax(a, low), high)"},
    {"clip", "fmin(fmax(a, low), high)"},
    {"divide", "a / b"},
    {"elu", "a > 0 ? a : expm1(a)"},
    {"equal", "a == b"},
    {"float_power", "pow(a, b)"},
    {"floor_divide", "floor(a / b)"},
    {"greater", "a > b"},
    {"heaviside", "a > 0 ? 1 : a == 0 ? b : 0"},
    {"isnan", "a != a"},
    {"leaky_relu", "a > 0 ? a : 0.01 * a"},
    {"less", "a < b"},
    {"logical_and", "a && b"},
    {"logical_not", "!a"},
    {"logical_or", "a || b"},
    {"maximum", "fmax(a, b)"},
    {"mean", "+=!, and a division by the count"},
    {"minimum", "fmin(a, b)"},
    {"mod", "a % b"},
    {"multiply", "a * b"},
    {"negative", "-a"},
    {"power", "pow(a, b)"},
    {"prod", "*=!"},
    {"reciprocal", "1 / a"},
    {"square", "pow(a, 2)"},
    {"subtract", "a - b"},
    {"sum", "+=!"},
    {"true_divide", "a / b"},
};
static_assert(std::ranges::is_sorted(kSpellings, {}, &Spelling::name));

}  // namespace

std::string_view spelling_of(std::string_view name) {
    const auto* const found = std::ranges::lower_bound(kSpellings, name, {}, &Spelling::name);
    return found != std::end(kSpellings) && found->name == name ? found->here : "";
}

const Function* find_function(std::string_view name) {
    const auto* const synonym = std::ranges::lower_bound(kSynonyms, name, {}, &Synonym::name);
    if (synonym != std::end(kSynonyms) && synonym->name == name) name = synonym->function;
    const Function* const found = std::ranges::lower_bound(kFunctions, name, {}, &Function::name);
    return found != std::end(kFunctions) && found->name == name ? found : nullptr;
}

int tightness(std::string_view text) {
    const auto is_one_of = [&](std::string_view first) {
        return first.find(text.front()) != std::string_view::npos;
    };
    if (text.size() == 1)
        return is_one_of("*/%") ? 5 : is_one_of("+-") ? 4 : is_one_of("<>") ? 3 : 0;
    if (text == "&&") return 2;
    if (text == "||") return 1;
    return text.size() == 2 && text.back() == '=' && is_one_of("<>=!") ? 3 : 0;
}

bool is_type(std::string_view name) {
    const Function* const function = find_function(name);
    return function != nullptr && function->rule == Rule::cast;
}

ValueType type_named(std::string_view name) {
    if (name.empty()) return ValueType::real;
    if (!is_type(name)) throw std::out_of_range("'" + std::string(name) + "' is no type.");
    if (name == "bool") return ValueType::truth;
    return name.find("int") != std::string_view::npos ? ValueType::integer : ValueType::real;
}

}  // namespace dlprim
