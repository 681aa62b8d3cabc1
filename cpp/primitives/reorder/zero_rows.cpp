// Compiled once per target, see per_isa.h.
#include "primitives/reorder/zero_rows.h"

#include <cstring>

#include "jit/isa.h"
#include "primitives/tensor/per_isa.h"

#define HWY_TARGET_INCLUDE "primitives/reorder/zero_rows.cpp"
// clang-format off
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on
#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();
namespace dlprim {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Rows that are whole cache lines.
void stream(const ZeroRows& zeros) {
    const hn::ScalableTag<std::uint8_t> d;
    const auto bytes = static_cast<std::int64_t>(hn::Lanes(d));
    for (std::int64_t row = 0; row < zeros.rows; ++row) {
        auto* const out = reinterpret_cast<std::uint8_t*>(zeros.first + row * zeros.stride);
        for (std::int64_t i = 0; i < zeros.row_bytes; i += bytes) {
            hn::Stream(hn::Zero(d), d, out + i);
        }
    }
}

auto function() { return stream; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dlprim
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dlprim {
namespace {

constexpr std::int64_t kLine = 64;

using Stream = void (*)(const ZeroRows&);

Stream stream_function(Isa isa) { return DLPRIM_FOR_ISA(isa, function)(); }

bool is_whole_lines(const ZeroRows& zeros) {
    return reinterpret_cast<std::intptr_t>(zeros.first) % kLine == 0 &&
           zeros.row_bytes % kLine == 0 && zeros.stride % kLine == 0;
}

}  // namespace

void write_zeros(const ZeroRows& zeros) {
    if (zeros.around_caches && is_whole_lines(zeros)) {
        stream_function(usable_isa())(zeros);
        return;
    }
    if (zeros.stride == zeros.row_bytes) {
        std::memset(zeros.first, 0, static_cast<std::size_t>(zeros.rows * zeros.row_bytes));
        return;
    }
    for (std::int64_t row = 0; row < zeros.rows; ++row) {
        std::memset(zeros.first + row * zeros.stride, 0, static_cast<std::size_t>(zeros.row_bytes));
    }
}

void finish_zeros() { hwy::FlushStream(); }

}  // namespace dlprim
#endif
