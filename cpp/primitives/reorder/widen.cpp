#include "primitives/reorder/widen.h"

#include <algorithm>

#include <emmintrin.h>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kWidenTaskBytes = 32 * 1024;
constexpr std::int64_t kVectorBytes = 16;

struct Words {
    __m128i low;  // of the first eight bytes
    __m128i high;
};

Words widened(DType from, const void* src) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(src));
    if (from == DType::u8) {
        const __m128i zero = _mm_setzero_si128();
        return {_mm_unpacklo_epi8(bytes, zero), _mm_unpackhi_epi8(bytes, zero)};
    }
    return {_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8),
            _mm_srai_epi16(_mm_unpackhi_epi8(bytes, bytes), 8)};
}

void store(std::int16_t* to, __m128i words) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
}

// 32-bit parts 0 and 2, or 1 and 3, of both.
template <int first>
__m128i every_second(const Words& words) {
    constexpr int parts = first == 0 ? _MM_SHUFFLE(2, 0, 2, 0) : _MM_SHUFFLE(3, 1, 3, 1);
    return _mm_castps_si128(
        _mm_shuffle_ps(_mm_castsi128_ps(words.low), _mm_castsi128_ps(words.high), parts));
}

void widen_range(DType from, const std::uint8_t* src, std::int64_t count, std::int16_t* dst) {
    std::int64_t i = 0;
    for (; i + kVectorBytes <= count; i += kVectorBytes) {
        const Words words = widened(from, src + i);
        store(dst + i, words.low);
        store(dst + i + kVectorBytes / 2, words.high);
    }
    for (; i < count; ++i) {
        dst[i] = from == DType::u8 ? src[i] : static_cast<std::int8_t>(src[i]);
    }
}

void widen_row(const std::int8_t* src, std::int64_t columns, std::int16_t* dst) {
    std::int16_t* const second = dst + columns * 2;
    std::int64_t column = 0;
    for (; column + kVectorBytes / 4 <= columns; column += kVectorBytes / 4) {
        const Words words = widened(DType::s8, src + column * 4);
        store(dst + column * 2, every_second<0>(words));
        store(second + column * 2, every_second<1>(words));
    }
    for (; column < columns; ++column) {
        for (std::int64_t i = 0; i < 2; ++i) {
            dst[column * 2 + i] = src[column * 4 + i];
            second[column * 2 + i] = src[column * 4 + 2 + i];
        }
    }
}

}  // namespace

void widen_bytes(DType from, const void* src, std::int64_t count, std::int16_t* dst) {
    const Blocks tasks{count, kWidenTaskBytes};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        const Range range = tasks.at(task);
        widen_range(from, static_cast<const std::uint8_t*>(src) + range.begin, range.size(),
                    dst + range.begin);
    });
}

void widen_packed(const std::int8_t* src, std::int64_t rows, std::int64_t columns,
                  std::int16_t* dst) {
    const std::int64_t row = columns * 4;
    const Blocks tasks{rows,
                       std::max<std::int64_t>(kWidenTaskBytes / std::max<std::int64_t>(row, 1), 1)};
    parallel_for(tasks.count(), [&](std::int64_t task) {
        for (std::int64_t i = tasks.at(task).begin; i < tasks.at(task).end; ++i) {
            widen_row(src + i * row, columns, dst + i * row);
        }
    });
}

}  // namespace dlprim
