#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cases.h"
#include "guarded_elements.h"
#include "jit/isa.h"
#include "primitives/reorder/pack.h"
#include "primitives/reorder/reorder.h"
#include "primitives/reorder/reorder_plan.h"
#include "primitives/tensor/layout.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::differences;
using testing::Elements;
using testing::Fence;

struct Types {
    DType from;
    DType to;
};

constexpr Types kTypes[] = {{DType::f32, DType::f32},
                            {DType::bf16, DType::bf16},
                            {DType::f32, DType::bf16},
                            {DType::s8, DType::s8}};

// What an element of `from` is in `to`.
std::uint32_t converted(std::uint32_t bits, Types types) {
    if (types.from == types.to) return bits;
    const auto value = std::bit_cast<float>(bits);
    std::uint16_t half = 0;
    round_to_bf16(&value, &half, 1);
    return half;
}

// body(element of from or -1 in padding, element of to) for all that `to` stores.
template <class Body>
void for_elements(const Layout& from, const Layout& to, const Body& body) {
    std::int64_t count = 1;
    for (const LayoutDimension& it : to.dimensions) count *= it.padded();
    for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = i, source = 0, target = 0;
        bool exists = true;
        for (const LayoutDimension& it : to.dimensions) {
            const std::int64_t index = rest % it.padded();
            rest /= it.padded();
            target += it.offset(index);
            exists = exists && index < it.extent;
            source += from.dimension(it.letter).offset(index);
        }
        body(exists ? source : -1, target);
    }
}

void check(const Layout& from, const Layout& to, Fence fence) {
    const Types types{from.dtype, to.dtype};
    Elements src(from.elements(), from.dtype, fence), dst(to.elements(), to.dtype, fence);
    Elements expected(to.elements(), to.dtype, fence);
    src.number();
    for_elements(from, to, [&](std::int64_t source, std::int64_t target) {
        expected.set(target, source < 0 ? 0 : converted(src.at(source), types));
    });
    reorder(from, src.data(), to, dst.data());
    CHECK(differences(dst, expected) == 0);
}

std::string text_of(const Layout& layout) {
    std::string text(name_of(layout.dtype));
    for (const LayoutDimension& dimension : layout.dimensions) {
        text += std::string(" ") + dimension.letter + std::to_string(dimension.extent) + "=";
        for (const DimensionLevel& level : dimension.levels) {
            text += std::to_string(level.extent) + "*" + std::to_string(level.stride) + " ";
        }
    }
    return text;
}

// Layouts of one tensor: its dimensions in blocks of any sizes and any order of storage.
class Layouts {
public:
    explicit Layouts(unsigned seed) : random_(seed) {
        const std::int64_t count = any(1, 5);
        for (std::int64_t i = 0; i < count; ++i) {
            extents_.push_back({static_cast<char>('a' + i), extent()});
        }
    }

    Layout next(DType dtype) {
        std::vector<Indices> order;
        for (const Indices& it : extents_) {
            std::int64_t inner = 1;
            for (std::int64_t levels = it.extent > 0 ? any(0, 2) : 0; levels > 0; --levels) {
                order.push_back({it.letter, kBlocks[any(0, 7)]});
                inner *= order.back().extent;
            }
            const std::int64_t blocks = (it.extent + inner - 1) / inner;
            order.push_back({it.letter, blocks + (any(0, 9) == 0 ? 1 : 0)});
        }
        std::shuffle(order.begin(), order.end(), random_);
        Layout layout = stored_layout(dtype, extents_, order);
        if (any(0, 2) == 0) leave_gaps(layout);
        return layout;
    }

    std::int64_t any(std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
    }

private:
    static constexpr std::int64_t kBlocks[] = {1, 2, 2, 4, 3, 16, 6, 8};

    std::int64_t extent() {
        const std::int64_t kind = any(0, 19);
        if (kind == 0) return 0;
        return kind < 8 ? any(1, 5) : any(1, extents_.empty() ? 150 : 40 / (1 + count()));
    }
    std::int64_t count() const { return static_cast<std::int64_t>(extents_.size()); }

    // As a part of something wider.
    void leave_gaps(Layout& layout) {
        const std::int64_t beyond = any(2, 30);
        for (LayoutDimension& dimension : layout.dimensions) {
            for (DimensionLevel& level : dimension.levels) {
                if (level.stride >= beyond) level.stride *= 2;
            }
        }
    }

    std::mt19937 random_;
    std::vector<Indices> extents_;
};

TEST_CASE("any layouts of a tensor") {
    const int before = num_threads();
    for (unsigned seed = 0; seed < testing::cases(3000); ++seed) {
        Layouts layouts(seed);
        const Types types = kTypes[layouts.any(0, 3)];
        const Layout from = layouts.next(types.from), to = layouts.next(types.to);
        if (std::max(from.elements(), to.elements()) > 200000) continue;
        const std::string text = text_of(from) + " -> " + text_of(to);
        CAPTURE(text);
        set_num_threads(seed % 8 == 0 ? 3 : 1);
        check(from, to, seed % 2 == 0 ? Fence::after : Fence::before);
    }
    set_num_threads(before);
}

TEST_CASE("channels of bytes change places in tiles, not one by one") {
    for (const std::int64_t channels : {3, 8, 64}) {
        const Layout first = plain_layout(DType::u8, {{'c', channels}, {'h', 9}, {'w', 14}});
        const Layout last = plain_layout(DType::u8, {{'h', 9}, {'w', 14}, {'c', channels}});
        const Move expected = usable_isa() == Isa::scalar ? Move::single : Move::transposition;
        CHECK(plan_reorder(first, last).move == expected);
        CHECK(plan_reorder(last, first).move == expected);
    }
}

TEST_CASE("types that are not converted") {
    const std::vector<Indices> order = {{'n', 3}};
    std::uint32_t values[3] = {};
    CHECK_THROWS_AS(
        reorder(plain_layout(DType::bf16, order), values, plain_layout(DType::f32, order), values),
        std::invalid_argument);
}

}  // namespace
}  // namespace dlprim
