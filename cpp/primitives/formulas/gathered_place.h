// Places that are read from an array, int32 or int64: anybody's numbers, so that all of them are
// looked at before anything is read there or written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "jit/dtype.h"
#include "primitives/statements/bound_statement.h"

namespace dlprim {

// A place of the source that is read from an operand.
struct GatheredPlace {
    std::int64_t extent = 0;  // of the dimension
    std::int64_t stride = 0;  // elements of the source from one value to the next
    bool is_wide = false;     // int64, of which distances count halves
    bool is_checked = false;  // none lies outside
};

// The smallest and the largest value of an operand that holds places, but for runs of neighbours
// that all lie inside; the first is above the second where there is nothing else.
std::pair<std::int64_t, std::int64_t> outermost(const BoundStatement& statement,
                                                std::size_t operand, const void* places,
                                                const GatheredPlace& place);

// Calls body(value) for so many places, from one on, `stride` halves apart.
template <class Body>
void for_values(const void* places, bool is_wide, std::int64_t first, std::int64_t stride,
                std::int64_t count, const Body& body) {
    const std::int64_t half = size_of(DType::s32);
    const char* at = static_cast<const char*>(places) + first * half;
    const auto each = [&](auto value) {
        for (std::int64_t i = 0; i < count; ++i, at += stride * half) {
            std::memcpy(&value, at, sizeof(value));
            body(std::int64_t{value});
        }
    };
    is_wide ? each(std::int64_t{}) : each(std::int32_t{});
}

}  // namespace dlprim
