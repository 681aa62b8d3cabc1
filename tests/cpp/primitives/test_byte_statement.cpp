// Bytes as operands and results of statements, bit for bit.
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "jit/element_reference.h"
#include "primitives/statements/row_statement.h"
#include "statement_problem.h"

namespace dlprim {
namespace {

using testing::call;
using testing::number;
using testing::read;

constexpr std::int64_t kBytes = 256;

std::vector<std::uint8_t> computed(const BoundStatement& it, const std::vector<std::uint8_t>& a,
                                   const std::vector<std::uint8_t>& b) {
    std::vector<std::uint8_t> made(a.size());
    for (std::int64_t i = 0; i < kBytes; ++i) {
        for (std::int64_t j = 0; j < kBytes; ++j) {
            const auto value = [&](const BoundOperand& from, const std::vector<std::uint8_t>& of) {
                return element_at(from.dtype, of.data(), i * from.strides[0] + j * from.strides[1]);
            };
            const float x =
                (value(it.operands[0], a) - 3) * 0.0625F + (value(it.operands[1], b) + 7) * 0.1875F;
            set_element(it.result.dtype, made.data(), i * kBytes + j,
                        std::nearbyint(x / 0.125F) + 5);
        }
    }
    return made;
}

// As a residual between quantised arrays: all pairs of bytes.
TEST_CASE("bytes are read as numbers, and rounded and saturated where they are written") {
    constexpr std::array types = {DType::s8, DType::u8};
    const auto floats = [](const Expression& it, double zero, double scale) {
        return call("*", {call("-", {it, number(zero)}), number(scale)});
    };
    const Expression sum = call("+", {floats(read(0), 3, 0.0625), floats(read(1), -7, 0.1875)});
    const Expression rounded = call("rint", {call("/", {sum, number(0.125)})});
    std::vector<std::uint8_t> a(kBytes * kBytes), b(a.size()), found(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        a[i] = static_cast<std::uint8_t>(i);
        b[i] = static_cast<std::uint8_t>(i / kBytes);
    }
    BoundStatement it{.indices = {{"i", kBytes, false}, {"j", kBytes, false}},
                      .value = call("+", {rounded, number(5)})};
    it.result.strides = {kBytes, 1};
    using Strides = std::vector<std::int64_t>;
    const std::vector<std::array<Strides, 2>> ways = {{Strides{kBytes, 1}, Strides{kBytes, 1}},
                                                      {Strides{1, kBytes}, Strides{kBytes, 1}},
                                                      {Strides{1, 0}, Strides{0, 1}},
                                                      {Strides{0, 1}, Strides{1, 0}}};
    for (const auto& strides : ways) {
        for (std::size_t kinds = 0; kinds < 8; ++kinds) {
            it.operands = {{.dtype = types.at(kinds & 1), .strides = strides[0]},
                           {.dtype = types.at(kinds >> 1 & 1), .strides = strides[1]}};
            it.result.dtype = types.at(kinds >> 2);
            const RowStatement statement(it);
            statement.run(std::array<const void*, 2>{a.data(), b.data()}, found.data());
            CAPTURE(statement.described());
            CHECK(found == computed(it, a, b));
        }
    }
}

TEST_CASE("what is no number, or too large, has a place among bytes") {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const std::vector<float> x = {kNan,   kInfinity, -kInfinity, 1e30F,  -1e30F, 0.5F,    1.5F,
                                  2.5F,   -0.5F,     -0.0F,      127.5F, 126.5F, -128.5F, 254.5F,
                                  255.5F, 300,       -1.5F,      3e9F,   -3e9F};
    const std::vector<std::uint8_t> whole_numbers = {0,   255, 0, 255, 0,   0,   2, 2,   0, 0,
                                                     128, 126, 0, 254, 255, 255, 0, 255, 0};
    const std::vector<std::int8_t> signed_numbers = {
        -128, 127, -128, 127, -128, 0, 2, 2, 0, 0, 127, 126, -128, 127, 127, 127, -2, 127, -128};
    BoundStatement it{.indices = {{"i", std::ssize(x), false}}, .value = read(0)};
    it.operands = {{.strides = {1}}};
    it.result.strides = {1};
    std::vector<std::uint8_t> found(x.size());
    it.result.dtype = DType::u8;
    RowStatement(it).run(std::array<const void*, 1>{x.data()}, found.data());
    CHECK(found == whole_numbers);
    std::vector<std::int8_t> found_signed(x.size());
    it.result.dtype = DType::s8;
    RowStatement(it).run(std::array<const void*, 1>{x.data()}, found_signed.data());
    CHECK(found_signed == signed_numbers);
}

}  // namespace
}  // namespace dlprim
