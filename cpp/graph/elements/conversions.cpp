#include "graph/elements/conversions.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include <emmintrin.h>

#include "graph/elements/element.h"

namespace dlprim {
namespace {

// What processors make of a float that no such integer is.
template <class Whole, class T>
constexpr bool is_inside(T value) {
    constexpr auto kLimit = static_cast<T>(std::uint64_t{1} << (sizeof(Whole) * 8 - 1));
    return (value >= -kLimit) & (value < kLimit);
}

template <class To, class T>
void cut(const T* from, std::int64_t count, To* to) {
    using Whole = std::conditional_t<(sizeof(To) < 4 || std::is_same_v<To, std::int32_t>),
                                     std::int32_t, std::int64_t>;
    int outside = 0;
    for (std::int64_t i = 0; i < count; ++i) outside |= is_inside<Whole>(from[i]) ? 0 : 1;
    if (outside == 0) {
        for (std::int64_t i = 0; i < count; ++i) {
            to[i] = static_cast<To>(static_cast<Whole>(from[i]));
        }
        return;
    }
    constexpr auto kTwo63 = static_cast<T>(std::uint64_t{1} << 63);
    for (std::int64_t i = 0; i < count; ++i) {
        const bool is_high = std::is_same_v<To, std::uint64_t> && from[i] >= kTwo63;
        const T value = is_high ? from[i] - kTwo63 : from[i];
        const Whole made =
            is_inside<Whole>(value) ? static_cast<Whole>(value) : std::numeric_limits<Whole>::min();
        to[i] = static_cast<To>(static_cast<std::uint64_t>(made) +
                                (is_high ? std::uint64_t{1} << 63 : 0));
    }
}

// One pass: the instruction gives the least integer for what no int64 is.
std::int64_t cut_wide(float from) { return _mm_cvttss_si64(_mm_set_ss(from)); }
std::int64_t cut_wide(double from) { return _mm_cvttsd_si64(_mm_set_sd(from)); }

template <class From, class To>
void convert(const void* const* in, std::int64_t count, void* out) {
    const From* const from = static_cast<const From*>(in[0]);
    To* const to = static_cast<To*>(out);
    if constexpr (kIsNarrow<From> && kIsReal<To>) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = To(static_cast<float>(from[i]));
    } else if constexpr (std::is_same_v<To, bool>) {
        using Wide = Computed<From>;
        for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Wide>(from[i]) != Wide{0};
    } else if constexpr (std::is_same_v<From, double> && kIsNarrow<To>) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = To(odd_float(from[i]));
    } else if constexpr (kIsNarrow<To>) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = To(static_cast<float>(from[i]));
    } else if constexpr (kIsNarrow<From>) {
        for (std::int64_t i = 0; i < count; ++i) {
            const float value = from[i];
            cut(&value, 1, to + i);
        }
    } else if constexpr (kIsReal<From> && std::is_same_v<To, std::int64_t>) {
        for (std::int64_t i = 0; i < count; ++i) to[i] = cut_wide(from[i]);
    } else if constexpr (kIsReal<From> && !kIsReal<To>) {
        cut(from, count, to);
    } else {
        for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
    }
}

template <class T>
using Type = typename T::Type;

}  // namespace

MapCompute map_conversion(const std::string& from, const std::string& to) {
    return with_element_type(from, [&](auto source) {
        return with_element_type(to, [](auto target) -> MapCompute {
            return &convert<Type<decltype(source)>, Type<decltype(target)>>;
        });
    });
}

void fill_elements(const std::string& dtype, double number, std::int64_t count, void* out) {
    const void* const from = &number;
    map_conversion("float64", dtype)(&from, 1, out);
    with_element_type(dtype, [&](auto of) {
        auto* const to = static_cast<Type<decltype(of)>*>(out);
        std::fill(to + 1, to + count, to[0]);
    });
}

}  // namespace dlprim
