#include "graph/elements/map_functions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <type_traits>

#include "graph/elements/element.h"

namespace dlprim {
namespace {

using Table = std::map<std::string, MapFunction>;

template <class T, class Result, class Each>
void each_of_one(const void* const* in, std::int64_t count, void* out) {
    const T* const a = static_cast<const T*>(in[0]);
    auto* const y = static_cast<Result*>(out);
    for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<Result>(Each()(a[i]));
}

template <class T, class Result, class Each>
void each_of_two(const void* const* in, std::int64_t count, void* out) {
    const T *const a = static_cast<const T*>(in[0]), *const b = static_cast<const T*>(in[1]);
    auto* const y = static_cast<Result*>(out);
    for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<Result>(Each()(a[i], b[i]));
}

// A choice of two numbers, which compilers know in vectors; the conversion of a bool they do not.
template <class T, class Each>
void floats_of_two(const void* const* in, std::int64_t count, void* out) {
    const T *const a = static_cast<const T*>(in[0]), *const b = static_cast<const T*>(in[1]);
    auto* const y = static_cast<float*>(out);
    for (std::int64_t i = 0; i < count; ++i) y[i] = Each()(a[i], b[i]) ? 1.0F : 0.0F;
}

template <class T, class Each>
MapFunction one(Each) {
    return {.operands = 1, .compute = &each_of_one<T, T, Each>};
}

template <class T, class Each>
MapFunction two(Each) {
    return {.operands = 2, .compute = &each_of_two<T, T, Each>};
}

template <class T, class Each>
MapFunction condition_of_one(Each) {
    return {.operands = 1, .is_condition = true, .compute = &each_of_one<T, bool, Each>};
}

template <class T, class Each>
MapFunction condition_of_two(Each) {
    return {.operands = 2,
            .is_condition = true,
            .compute = &each_of_two<T, bool, Each>,
            .to_floats = &floats_of_two<T, Each>};
}

template <class T>
void choose(const void* const* in, std::int64_t count, void* out) {
    const auto* const is_first = static_cast<const bool*>(in[0]);
    const T *const a = static_cast<const T*>(in[1]), *const b = static_cast<const T*>(in[2]);
    auto* const y = static_cast<T*>(out);
    for (std::int64_t i = 0; i < count; ++i) y[i] = is_first[i] ? a[i] : b[i];
}

// ---------------------------------------------------------------- of all types

template <class T>
Table shared_functions() {
    return {
        {"equal", condition_of_two<T>([](T a, T b) { return a == b; })},
        {"not_equal", condition_of_two<T>([](T a, T b) { return a != b; })},
        {"less", condition_of_two<T>([](T a, T b) { return a < b; })},
        {"less_equal", condition_of_two<T>([](T a, T b) { return a <= b; })},
        {"greater", condition_of_two<T>([](T a, T b) { return a > b; })},
        {"greater_equal", condition_of_two<T>([](T a, T b) { return a >= b; })},
        {"where", {.operands = 3, .compute = &choose<T>}},
    };
}

// Of the bytes 0 and 1.
Table condition_functions() {
    using Flag = std::uint8_t;
    Table made = shared_functions<Flag>();
    const MapFunction both = two<Flag>([](Flag a, Flag b) { return a & b; });
    const MapFunction either = two<Flag>([](Flag a, Flag b) { return a | b; });
    const MapFunction differ = two<Flag>([](Flag a, Flag b) { return a ^ b; });
    const MapFunction opposite = one<Flag>([](Flag a) { return a ^ 1; });
    for (const char* name : {"and", "bitwise_and", "minimum", "multiply"}) made[name] = both;
    for (const char* name : {"or", "bitwise_or", "maximum", "add"}) made[name] = either;
    for (const char* name : {"xor", "bitwise_xor"}) made[name] = differ;
    for (const char* name : {"not", "bitwise_not"}) made[name] = opposite;
    for (const char* name : {"and", "or", "xor", "not"}) made[name].is_condition = true;
    return made;
}

// ---------------------------------------------------------------- integers

// Sums and products may leave the type, as unsigned numbers do.
template <class T>
using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
constexpr T negated(T a) {
    return static_cast<T>(Word<T>{0} - static_cast<Word<T>>(a));
}

// By 0 both are 0; by -1 nothing leaves the type.
template <class T>
constexpr T quotient(T a, T b) {
    if (b == 0) return 0;
    return std::is_signed_v<T> && b == static_cast<T>(-1) ? negated(a) : static_cast<T>(a / b);
}

template <class T>
constexpr T rest(T a, T b) {
    if (b == 0 || (std::is_signed_v<T> && b == static_cast<T>(-1))) return 0;
    return static_cast<T>(a % b);
}

// With the sign of the divisor.
template <class T>
constexpr T floored_rest(T a, T b) {
    const T left = rest(a, b);
    return left != 0 && (left < 0) != (b < 0) ? static_cast<T>(left + b) : left;
}

// Powers below zero are cut towards zero.
template <class T>
constexpr T whole_power(T a, T b) {
    if (b < 0) {
        if (a != 1 && a != static_cast<T>(-1)) return 0;
        b = static_cast<T>(b & 1);
    }
    Word<T> base = static_cast<Word<T>>(a), made = 1;
    for (auto left = static_cast<Word<T>>(b); left != 0; left >>= 1) {
        if ((left & 1) != 0) made *= base;
        base *= base;
    }
    return static_cast<T>(made);
}

template <class T>
constexpr bool is_shift(T b) {
    return b >= 0 && static_cast<Word<T>>(b) < sizeof(T) * 8;
}

template <class T>
constexpr T shifted_left(T a, T b) {
    return is_shift(b) ? static_cast<T>(static_cast<Word<T>>(a) << b) : T{0};
}

// Of what is shifted further than the type is wide, the sign is left.
template <class T>
constexpr T shifted_right(T a, T b) {
    if (is_shift(b)) return static_cast<T>(a >> b);
    return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
}

template <class T>
Table whole_functions() {
    Table made = shared_functions<T>();
    const auto wide = [](T a) { return static_cast<Word<T>>(a); };
    using W = decltype(wide);
    made["abs"] = one<T>([](T a) { return a < 0 ? negated(a) : a; });
    made["add"] = two<T>([](T a, T b) { return W()(a) + W()(b); });
    made["bitwise_and"] = two<T>([](T a, T b) { return a & b; });
    made["bitwise_not"] = one<T>([](T a) { return ~a; });
    made["bitwise_or"] = two<T>([](T a, T b) { return a | b; });
    made["bitwise_xor"] = two<T>([](T a, T b) { return a ^ b; });
    made["divide"] = two<T>([](T a, T b) { return quotient(a, b); });
    made["fmod"] = two<T>([](T a, T b) { return rest(a, b); });
    made["maximum"] = two<T>([](T a, T b) { return std::max(a, b); });
    made["minimum"] = two<T>([](T a, T b) { return std::min(a, b); });
    made["multiply"] = two<T>([](T a, T b) { return W()(a) * W()(b); });
    made["negate"] = one<T>([](T a) { return negated(a); });
    made["power"] = two<T>([](T a, T b) { return whole_power(a, b); });
    made["relu"] = one<T>([](T a) { return std::max(a, T{0}); });
    made["remainder"] = two<T>([](T a, T b) { return floored_rest(a, b); });
    made["shift_left"] = two<T>([](T a, T b) { return shifted_left(a, b); });
    made["shift_right"] = two<T>([](T a, T b) { return shifted_right(a, b); });
    made["sign"] = one<T>([](T a) { return (a > 0) - (a < 0); });
    made["subtract"] = two<T>([](T a, T b) { return W()(a) - W()(b); });
    return made;
}

// ---------------------------------------------------------------- floats

// What is no number stays.
template <class T>
T larger(T a, T b) {
    return a >= b || std::isnan(a) ? a : b;
}

template <class T>
T smaller(T a, T b) {
    return a <= b || std::isnan(a) ? a : b;
}

template <class T>
T floored_real_rest(T a, T b) {
    const T left = std::fmod(a, b);
    if (left == 0) return std::copysign(T{0}, b);
    return (left < 0) != (b < 0) ? left + b : left;
}

template <class T>
T to_six(T a) {
    return a < 0 ? T{0} : (a > 6 ? T{6} : a);
}

template <class T>
T logistic(T a) {
    return 1 / (1 + std::exp(-a));
}

template <class T>
T soft_relu(T a) {
    return std::isnan(a) ? a : std::max(a, T{0}) + std::log1p(std::exp(-std::abs(a)));
}

// Of minus infinity the limit, which is -0.
template <class T>
T weighted(T a, T share) {
    return std::isinf(a) && a < 0 ? -(0 * share) : a * share;
}

template <class T>
Table arithmetic_functions() {
    return {
        {"abs", one<T>([](T a) { return std::abs(a); })},
        {"add", two<T>([](T a, T b) { return a + b; })},
        {"ceil", one<T>([](T a) { return std::ceil(a); })},
        {"divide", two<T>([](T a, T b) { return a / b; })},
        {"floor", one<T>([](T a) { return std::floor(a); })},
        {"fmax", two<T>([](T a, T b) { return std::fmax(a, b); })},
        {"fmod", two<T>([](T a, T b) { return std::fmod(a, b); })},
        {"hardsigmoid", one<T>([](T a) { return to_six(a + 3) / 6; })},
        {"hardswish", one<T>([](T a) { return a * (to_six(a + 3) / 6); })},
        {"is_inf", condition_of_one<T>([](T a) { return std::isinf(a); })},
        {"is_nan", condition_of_one<T>([](T a) { return std::isnan(a); })},
        {"maximum", two<T>([](T a, T b) { return larger(a, b); })},
        {"minimum", two<T>([](T a, T b) { return smaller(a, b); })},
        {"multiply", two<T>([](T a, T b) { return a * b; })},
        {"negate", one<T>([](T a) { return -a; })},
        {"reciprocal", one<T>([](T a) { return 1 / a; })},
        {"relu", one<T>([](T a) { return a < 0 ? T{0} : a; })},
        {"relu6", one<T>([](T a) { return to_six(a); })},
        {"remainder", two<T>([](T a, T b) { return floored_real_rest(a, b); })},
        {"round", one<T>([](T a) { return std::nearbyint(a); })},
        {"sign", one<T>([](T a) { return std::isnan(a) ? a : T((a > 0) - (a < 0)); })},
        {"sqrt", one<T>([](T a) { return std::sqrt(a); })},
        {"subtract", two<T>([](T a, T b) { return a - b; })},
    };
}

template <class T>
Table elementary_functions() {
    constexpr T kRootOfHalf = T(0.70710678118654752440), kRootOf2ByPi = T(0.79788456080286535588);
    return {
        {"acos", one<T>([](T a) { return std::acos(a); })},
        {"acosh", one<T>([](T a) { return std::acosh(a); })},
        {"asin", one<T>([](T a) { return std::asin(a); })},
        {"asinh", one<T>([](T a) { return std::asinh(a); })},
        {"atan", one<T>([](T a) { return std::atan(a); })},
        {"atanh", one<T>([](T a) { return std::atanh(a); })},
        {"cos", one<T>([](T a) { return std::cos(a); })},
        {"cosh", one<T>([](T a) { return std::cosh(a); })},
        {"erf", one<T>([](T a) { return std::erf(a); })},
        {"exp", one<T>([](T a) { return std::exp(a); })},
        {"gelu", one<T>([](T a) { return weighted(a, (1 + std::erf(a * kRootOfHalf)) / 2); })},
        {"gelu_tanh", one<T>([](T a) {
             return a / 2 * (1 + std::tanh(kRootOf2ByPi * (a + T(0.044715) * a * a * a)));
         })},
        {"log", one<T>([](T a) { return std::log(a); })},
        {"mish", one<T>([](T a) { return weighted(a, std::tanh(soft_relu(a))); })},
        {"power", two<T>([](T a, T b) { return std::pow(a, b); })},
        {"sigmoid", one<T>([](T a) { return logistic(a); })},
        {"sin", one<T>([](T a) { return std::sin(a); })},
        {"sinh", one<T>([](T a) { return std::sinh(a); })},
        {"softplus", one<T>([](T a) { return soft_relu(a); })},
        {"swish", one<T>([](T a) { return a * logistic(a); })},
        {"tan", one<T>([](T a) { return std::tan(a); })},
        {"tanh", one<T>([](T a) { return std::tanh(a); })},
    };
}

template <class T>
const Table& functions_of() {
    static const Table found = [] {
        if constexpr (kIsNarrow<T>) {
            return Table{{"where", {.operands = 3, .compute = &choose<T>}}};
        } else if constexpr (std::is_floating_point_v<T>) {
            Table made = shared_functions<T>();
            made.merge(arithmetic_functions<T>());
            made.merge(elementary_functions<T>());
            return made;
        } else if constexpr (std::is_same_v<T, bool>) {
            return condition_functions();
        } else {
            return whole_functions<T>();
        }
    }();
    return found;
}

template <class T>
using Type = typename T::Type;

}  // namespace

const MapFunction* find_map_function(const std::string& name, const std::string& dtype) {
    const Table& known = with_element_type(
        dtype, [](auto of) -> const Table& { return functions_of<Type<decltype(of)>>(); });
    const auto found = known.find(name);
    return found == known.end() ? nullptr : &found->second;
}

}  // namespace dlprim
