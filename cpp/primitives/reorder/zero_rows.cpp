#include "primitives/reorder/zero_rows.h"

#include <cstring>

#include <emmintrin.h>

#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

bool is_whole_lines(const ZeroRows& zeros) {
    return reinterpret_cast<std::intptr_t>(zeros.first) % kCacheLineBytes == 0 &&
           zeros.row_bytes % kCacheLineBytes == 0 && zeros.stride % kCacheLineBytes == 0;
}

// Memory is what this waits for, whatever the width of the stores.
void write_around_caches(char* first, std::int64_t bytes) {
    const __m128 zero = _mm_setzero_ps();
    for (std::int64_t i = 0; i < bytes; i += static_cast<std::int64_t>(sizeof zero)) {
        _mm_stream_ps(reinterpret_cast<float*>(first + i), zero);
    }
}

}  // namespace

void write_zeros(const ZeroRows& zeros) {
    const bool around_caches = zeros.around_caches && is_whole_lines(zeros);
    for (std::int64_t row = 0; row < zeros.rows; ++row) {
        char* const first = zeros.first + row * zeros.stride;
        if (around_caches) {
            write_around_caches(first, zeros.row_bytes);
        } else {
            std::memset(first, 0, static_cast<std::size_t>(zeros.row_bytes));
        }
    }
}

void finish_zeros() { _mm_sfence(); }

}  // namespace dlprim
