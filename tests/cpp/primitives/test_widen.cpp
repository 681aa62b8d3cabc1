// Bytes become the words that they are, in every order and at every remainder of a vector.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "draw.h"
#include "primitives/reorder/widen.h"

namespace dlprim {
namespace {

std::vector<std::int8_t> drawn_bytes(std::int64_t count) {
    testing::Draw draw(1);
    std::vector<std::int8_t> bytes;
    for (std::int64_t i = 0; i < count; ++i) {
        bytes.push_back(static_cast<std::int8_t>(draw.from(-128, 127)));
    }
    return bytes;
}

TEST_CASE("bytes are widened with their sign or without") {
    for (const std::int64_t count : {0, 1, 15, 16, 33, 70000}) {
        const std::vector<std::int8_t> bytes = drawn_bytes(count);
        const auto size = static_cast<std::size_t>(count);
        std::vector<std::int16_t> as_signed(size), as_unsigned(size);
        widen_bytes(DType::s8, bytes.data(), count, as_signed.data());
        widen_bytes(DType::u8, bytes.data(), count, as_unsigned.data());
        std::int64_t wrong = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const bool right =
                as_signed[i] == bytes[i] && as_unsigned[i] == static_cast<std::uint8_t>(bytes[i]);
            wrong += right ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("packed fours become packed pairs") {
    for (const std::int64_t columns : {1, 3, 4, 17, 64}) {
        for (const std::int64_t rows : {1, 5, 700}) {
            const std::vector<std::int8_t> bytes = drawn_bytes(rows * columns * 4);
            std::vector<std::int16_t> words(bytes.size());
            widen_packed(bytes.data(), rows, columns, words.data());
            std::int64_t wrong = 0;
            for (std::int64_t row = 0; row < rows; ++row) {
                for (std::int64_t i = 0; i < columns * 4; ++i) {
                    const std::int64_t column = i / 4, within = i % 4;
                    const std::int64_t to =
                        ((row * 2 + within / 2) * columns + column) * 2 + within % 2;
                    const bool right = words[static_cast<std::size_t>(to)] ==
                                       bytes[static_cast<std::size_t>(row * columns * 4 + i)];
                    wrong += right ? 0 : 1;
                }
            }
            CHECK(wrong == 0);
        }
    }
}

}  // namespace
}  // namespace dlprim
