#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "brgemm/brgemm.h"

namespace dlprim {
namespace {

constexpr std::array kLevels = {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};
constexpr std::byte kUntouched{0xab};

struct Case {
    std::int64_t m;
    std::int64_t n;
    Gaps gaps;
    DType c_type;
};

// Bytes of C with its gaps: pixels of n elements, of which one in each cell is a row of C.
class Cells {
public:
    explicit Cells(const Case& it)
        : it_(it),
          pixel_(it.n * size_of(it.c_type)),
          plane_(it.m * (it.gaps.rows + 1) * pixel_ + kRest),
          memory_(static_cast<std::size_t>(plane_ * (it.gaps.planes + 1) + kLine), kUntouched) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
        first_ = memory_.data() + (kLine - address % kLine) % kLine;
    }

    void* c() { return first_; }
    std::int64_t plane_bytes() const { return plane_; }

    // Whether all bytes but C's rows and what lies between planes are zero, the latter untouched.
    bool gaps_are_zero() const {
        for (int plane = 0; plane <= it_.gaps.planes; ++plane) {
            const std::byte* const begin = first_ + plane * plane_;
            for (std::int64_t byte = 0; byte < plane_; ++byte) {
                const std::int64_t pixel = byte / pixel_;
                const bool rest = byte >= plane_ - kRest;
                if (!rest && plane == 0 && pixel % (it_.gaps.rows + 1) == 0) continue;
                if (begin[byte] != (rest ? kUntouched : std::byte{0})) return false;
            }
        }
        return true;
    }

private:
    static constexpr std::int64_t kLine = 64;
    static constexpr std::int64_t kRest = 64;  // behind each plane

    Case it_;
    std::int64_t pixel_;
    std::int64_t plane_;
    std::vector<std::byte> memory_;
    std::byte* first_;
};

BrgemmSpec spec_of(const Case& it, bool gaps) {
    const DType operands = it.c_type;
    return {.m = it.m,
            .n = it.n,
            .k = 6,
            .ldc = it.n * (it.gaps.rows + 1),
            .a_type = operands,
            .b_type = operands,
            .c_type = it.c_type,
            .gaps = gaps ? it.gaps : Gaps{}};
}

TEST_CASE("zeros beside every row of C, and C as without them") {
    for (const DType type : {DType::f32, DType::bf16}) {
        for (const std::int64_t m : {1, 7, 14, 29}) {
            for (const std::int64_t n : {32, 64, 96}) {
                for (const Gaps gaps : {Gaps{1, 1}, Gaps{2, 2}, Gaps{0, 1}, Gaps{3, 0}}) {
                    for (const Isa isa : kLevels) {
                        if (isa > usable_isa()) continue;
                        const Case it{m, n, gaps, type};
                        CAPTURE(m);
                        CAPTURE(n);
                        CAPTURE(name_of(isa));
                        // One half in both types: the upper half of a float32 is a bfloat16.
                        const std::vector<std::uint16_t> ones(16384, 0x3f00);
                        Cells with(it);
                        Cells without(it);
                        BrgemmArgs args{.a = ones.data(), .b = ones.data(), .batch = 2};
                        args.gap_stride = with.plane_bytes();
                        args.c = with.c();
                        (*brgemm(spec_of(it, true), isa))(args);
                        CHECK(with.gaps_are_zero());
                        args.c = without.c();
                        (*brgemm(spec_of(it, false), isa))(args);
                        const std::int64_t pixel = n * size_of(type);
                        for (std::int64_t row = 0; row < m; ++row) {
                            const std::int64_t offset = row * (gaps.rows + 1) * pixel;
                            CHECK(std::memcmp(static_cast<char*>(with.c()) + offset,
                                              static_cast<char*>(without.c()) + offset,
                                              static_cast<std::size_t>(pixel)) == 0);
                        }
                    }
                }
            }
        }
    }
}

TEST_CASE("gaps that a kernel cannot write are refused") {
    const Case it{4, 64, {1, 1}, DType::f32};
    CHECK_NOTHROW(validated(spec_of(it, true)));
    BrgemmSpec tail = spec_of(it, true);
    tail.n = 63;
    CHECK_THROWS_AS(validated(tail), std::invalid_argument);
    BrgemmSpec bytes = spec_of(it, true);
    bytes.a_type = bytes.c_type = DType::u8;
    bytes.b_type = DType::s8;
    CHECK_THROWS_AS(validated(bytes), std::invalid_argument);
    BrgemmSpec narrow = spec_of(it, true);
    narrow.ldc = 64;
    CHECK_THROWS_AS(validated(narrow), std::invalid_argument);
    BrgemmSpec negative = spec_of(it, true);
    negative.gaps.planes = -1;
    CHECK_THROWS_AS(validated(negative), std::invalid_argument);
}

}  // namespace
}  // namespace dlprim
