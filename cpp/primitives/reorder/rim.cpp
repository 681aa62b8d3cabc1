#include "primitives/reorder/rim.h"

#include <algorithm>
#include <cstring>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaskBytes = 32 * 1024;

char* filled(char* to, int value, std::int64_t bytes) {
    std::memset(to, value, static_cast<std::size_t>(bytes));
    return to + bytes;
}

}  // namespace

void copy_with_rim(const Rim& rim, const void* src, int value, void* dst) {
    const std::int64_t wide = rim.wide_row_bytes();
    if (wide == 0) return;
    const Blocks tasks{rim.planes * rim.wide_rows(), std::max<std::int64_t>(kTaskBytes / wide, 1)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        for (std::int64_t at = tasks.at(task).begin; at < tasks.at(task).end; ++at) {
            const std::int64_t row = at % rim.wide_rows() - rim.above;
            char* to = static_cast<char*>(dst) + at * wide;
            if (row < 0 || row >= rim.rows) {
                filled(to, value, wide);
                continue;
            }
            const std::int64_t from = at / rim.wide_rows() * rim.rows + row;
            to = filled(to, value, rim.before);
            std::memcpy(to, static_cast<const char*>(src) + from * rim.row_bytes,
                        static_cast<std::size_t>(rim.row_bytes));
            filled(to + rim.row_bytes, value, rim.behind);
        }
    });
}

}  // namespace dlprim
