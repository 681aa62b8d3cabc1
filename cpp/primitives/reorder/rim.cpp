#include "primitives/reorder/rim.h"

#include <algorithm>
#include <cstring>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kRimTaskBytes = 32 * 1024;

char* filled(char* to, int value, std::int64_t bytes) {
    std::memset(to, value, static_cast<std::size_t>(bytes));
    return to + bytes;
}

// Words of pixels, which take what they lack from the next ones, but not from behind the row.
void widen_pixels(const Rim& rim, const char* from, char* to) {
    const char* const end = from + rim.row_bytes();
    for (; end - from >= rim.wide_pixel_bytes; from += rim.pixel_bytes) {
        for (std::int64_t at = 0; at < rim.wide_pixel_bytes; at += kWord) {
            std::memcpy(to + at, from + at, kWord);
        }
        to += rim.wide_pixel_bytes;
    }
    for (; from < end; from += rim.pixel_bytes) {
        char* const behind =
            std::copy_n(from, std::min<std::int64_t>(end - from, rim.wide_pixel_bytes), to);
        to = filled(behind, 0, to + rim.wide_pixel_bytes - behind);
    }
}

void copy_pixels(const Rim& rim, const char* from, char* to) {
    if (rim.wide_pixel_bytes > rim.pixel_bytes) return widen_pixels(rim, from, to);
    std::memcpy(to, from, static_cast<std::size_t>(rim.row_bytes()));
}

}  // namespace

void copy_with_rim(const Rim& rim, const void* src, int value, void* dst) {
    const std::int64_t wide = rim.wide_row_bytes();
    if (wide == 0) return;
    const Blocks tasks{rim.planes * rim.wide_rows(),
                       std::max<std::int64_t>(kRimTaskBytes / wide, 1)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        for (std::int64_t at = tasks.at(task).begin; at < tasks.at(task).end; ++at) {
            const std::int64_t row = at % rim.wide_rows() - rim.above;
            char* to = static_cast<char*>(dst) + at * wide;
            if (row < 0 || row >= rim.rows) {
                filled(to, value, wide);
                continue;
            }
            const std::int64_t from = at / rim.wide_rows() * rim.rows + row;
            to = filled(to, value, rim.before * rim.wide_pixel_bytes);
            copy_pixels(rim, static_cast<const char*>(src) + from * rim.row_bytes(), to);
            filled(to + rim.pixels * rim.wide_pixel_bytes, value,
                   rim.behind * rim.wide_pixel_bytes);
        }
    });
}

}  // namespace dlprim
