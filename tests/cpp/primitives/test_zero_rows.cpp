#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include "guarded_memory.h"
#include "primitives/reorder/zero_rows.h"

namespace dlprim {
namespace {

using testing::Fence;
using testing::GuardedMemory;

constexpr char kUntouched = 0x5a;

struct Case {
    std::int64_t rows = 0;
    std::int64_t row_bytes = 0;
    std::int64_t stride = 0;
    std::int64_t from_fence = 0;  // bytes between the fence and the rows
};

// Every byte of the rows is zero, and no other one was written.
bool is_right(const Case& it, Fence fence, bool around_caches) {
    const std::int64_t span = it.rows == 0 ? 0 : (it.rows - 1) * it.stride + it.row_bytes;
    const std::int64_t bytes = (span + it.from_fence + 67) / 64 * 64;
    const GuardedMemory memory(bytes / 4, fence);
    char* const begin = reinterpret_cast<char*>(memory.data());
    std::fill_n(begin, bytes, kUntouched);
    char* const first =
        fence == Fence::before ? begin + it.from_fence : begin + bytes - it.from_fence - span;
    write_zeros({.first = first,
                 .rows = it.rows,
                 .row_bytes = it.row_bytes,
                 .stride = it.stride,
                 .around_caches = around_caches});
    finish_zeros();
    for (std::int64_t i = 0; i < bytes; ++i) {
        const std::int64_t place = begin + i - first;
        const bool inside = place >= 0 && place < span && place % it.stride < it.row_bytes;
        if (begin[i] != (inside ? 0 : kUntouched)) return false;
    }
    return true;
}

void check(const Case& it) {
    CAPTURE(it.rows);
    CAPTURE(it.row_bytes);
    CAPTURE(it.stride);
    CAPTURE(it.from_fence);
    for (const Fence fence : {Fence::before, Fence::after}) {
        CHECK(is_right(it, fence, false));
        CHECK(is_right(it, fence, true));
    }
}

TEST_CASE("rows at every alignment") {
    for (std::int64_t from_fence = 0; from_fence < 130; ++from_fence) {
        for (const std::int64_t row_bytes : {1, 2, 4, 60, 64, 66, 128}) {
            check({3, row_bytes, row_bytes, from_fence});
            check({2, row_bytes, row_bytes + 7, from_fence});
        }
    }
}

TEST_CASE("rows of every length") {
    for (std::int64_t row_bytes = 1; row_bytes <= 260; ++row_bytes) {
        check({2, row_bytes, row_bytes, 0});
        check({2, row_bytes, (row_bytes + 63) / 64 * 64, 0});
    }
}

TEST_CASE("whole cache lines, with and without lines between them") {
    for (const std::int64_t lines : {1, 2, 3, 17}) {
        for (const std::int64_t apart : {0, 1, 5}) {
            check({4, 64 * lines, 64 * (lines + apart), 0});
            check({1, 64 * lines, 64 * (lines + apart), 64});
        }
    }
}

TEST_CASE("no rows are no work") { check({0, 64, 64, 0}); }

}  // namespace
}  // namespace dlprim
