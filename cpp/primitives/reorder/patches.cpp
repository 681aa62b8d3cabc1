#include "primitives/reorder/patches.h"

#include <algorithm>
#include <cstring>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

void fill(char* to, int value, std::int64_t bytes) {
    std::memset(to, value, static_cast<std::size_t>(bytes));
}

// Taps of one row of the filter on a row of an image.
void copy_taps(const Patches& it, const char* row, std::int64_t q, int value, char* to) {
    const std::int64_t first = q * it.stride_w - it.before;
    const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, it.S);
    const std::int64_t end = std::clamp<std::int64_t>(it.width - first, begin, it.S);
    fill(to, value, begin * it.pixel_bytes);
    if (end > begin) {
        std::memcpy(to + begin * it.pixel_bytes, row + (first + begin) * it.pixel_bytes,
                    static_cast<std::size_t>((end - begin) * it.pixel_bytes));
    }
    fill(to + end * it.pixel_bytes, value, (it.S - end) * it.pixel_bytes);
}

}  // namespace

void copy_patches(const Patches& it, const void* src, int value, void* dst) {
    const std::int64_t line = it.width * it.pixel_bytes;
    parallel_for(it.images * it.P, [&](std::int64_t task) {
        const std::int64_t image = task / it.P;
        char* to = static_cast<char*>(dst) + task * it.Q * it.R * it.row_bytes();
        for (std::int64_t q = 0; q < it.Q; ++q) {
            for (std::int64_t r = 0; r < it.R; ++r, to += it.row_bytes()) {
                const std::int64_t row = task % it.P * it.stride_h + r - it.above;
                if (row < 0 || row >= it.height) {
                    fill(to, value, it.row_bytes());
                    continue;
                }
                const char* const from =
                    static_cast<const char*>(src) + (image * it.height + row) * line;
                copy_taps(it, from, q, value, to);
            }
        }
    });
}

}  // namespace dlprim
