#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "guarded_memory.h"
#include "jit/isa.h"
#include "moves/move_kernel.h"

namespace dlprim {
namespace {

using testing::Fence;
using testing::GuardedMemory;
using Way = MoveSpec::Way;

// So many bytes, flush with the fence.
struct Bytes {
    GuardedMemory memory;
    char* data;

    Bytes(std::int64_t bytes, Fence fence)
        : memory((bytes + 3) / 4, fence), data(reinterpret_cast<char*>(memory.data())) {
        if (fence == Fence::after) data += (bytes + 3) / 4 * 4 - bytes;
    }
};

class Problem {
public:
    explicit Problem(unsigned seed) : random_(seed) { seed % 2 == 0 ? draw_tiles() : draw_rest(); }

    const MoveSpec& spec() const { return spec_; }

    void check(Isa isa, Fence fence) {
        const Bytes src(src_bytes_, fence), dst(dst_bytes_, fence);
        std::generate_n(src.data, src_bytes_, [&] { return static_cast<char>(random_() >> 8); });
        std::fill_n(dst.data, dst_bytes_, '\x5a');
        std::vector<char> expected(dst.data, dst.data + dst_bytes_);
        args_.src = src.data;
        args_.dst = expected.data();
        reference_move(spec_, args_);
        args_.dst = dst.data;
        (*move_kernel(spec_, isa))(args_);
        CHECK(std::equal(expected.begin(), expected.end(), dst.data));
    }

private:
    std::int64_t any(std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
    }

    // Tiles below each other.
    void draw_tiles() {
        spec_.unit = static_cast<std::uint8_t>(1 << any(0, 3));
        spec_.rounds = (spec_.unit == 2 || spec_.unit == 4) && any(0, 2) == 0;
        spec_.reads_ahead = any(0, 3) == 0;
        const std::int64_t step = spec_.rounds || spec_.unit == 2 ? 2 : spec_.unit == 8 ? 4 : 1;
        const std::int64_t stored = std::min<std::int64_t>(spec_.unit, 4);
        spec_.src_bytes =
            static_cast<std::uint8_t>(any(0, 2) == 0 ? kTileSide : any(1, kTileSide / step) * step);
        spec_.dst_bytes = any(0, 2) == 0 ? kTileSide : any(1, 3 * kTileSide / stored) * stored;
        const std::int64_t rows = (spec_.dst_bytes + spec_.unit - 1) / spec_.unit;
        const std::int64_t columns = (spec_.src_bytes + spec_.unit - 1) / spec_.unit;
        args_.count = spec_.dst_bytes == kTileSide ? any(1, 3) : 1;
        args_.src_row = spec_.src_bytes * spec_.scale() + any(0, 1) * any(0, 70);
        args_.dst_row = args_.count * spec_.dst_bytes + any(0, 1) * any(0, 70);
        args_.src_step = rows * args_.src_row;
        args_.dst_step = spec_.dst_bytes;
        src_bytes_ = (args_.count * rows - 1) * args_.src_row + spec_.src_bytes * spec_.scale();
        dst_bytes_ = (columns - 1) * args_.dst_row + args_.count * spec_.dst_bytes;
        if (any(0, 2) == 0) list(src_rows_, args_.count * rows, args_.src_row);
        if (any(0, 2) == 0) list(dst_rows_, columns, args_.dst_row);
        spec_.lists_src = !src_rows_.empty();
        spec_.lists_dst = !dst_rows_.empty();
        spec_.second_is_zero = spec_.lists_src && spec_.unit == 2 && any(0, 1) == 0;
        if (spec_.lists_src) args_.src_step = 0;
        args_.src_rows = src_rows_.data();
        args_.dst_rows = dst_rows_.data();
        args_.src_rows_step = rows * 8;
    }

    void list(std::vector<std::int64_t>& rows, std::int64_t count, std::int64_t distance) {
        for (std::int64_t i = 0; i < count; ++i) rows.push_back(i * distance);
        std::shuffle(rows.begin(), rows.end(), random_);
    }

    void draw_rest() {
        args_.count = any(1, 3);
        if (any(0, 2) == 0) return draw_parts();
        spec_.way = Way::group;
        spec_.unit = static_cast<std::uint8_t>(any(1, 2));
        spec_.rounds = spec_.unit == 2 && any(0, 1) == 0;
        const std::int64_t sources = any(1, 4 / spec_.unit), words = any(1, any(0, 3) ? 40 : 300);
        spec_.src_bytes = static_cast<std::uint8_t>(sources * spec_.unit);
        spec_.dst_bytes = words * 4;
        args_.src_row = words * spec_.unit * spec_.scale() + any(0, 1) * any(0, 70);
        args_.src_step = sources * args_.src_row;
        args_.dst_step = spec_.dst_bytes + any(0, 1) * any(0, 70);
        src_bytes_ =
            (args_.count * sources - 1) * args_.src_row + words * spec_.unit * spec_.scale();
        dst_bytes_ = (args_.count - 1) * args_.dst_step + spec_.dst_bytes;
    }

    void draw_parts() {
        const bool joins = any(0, 1) == 0;
        const std::int64_t parts = any(2, 3);
        spec_.way = parts == 2 ? (joins ? Way::join_two : Way::split_two)
                               : (joins ? Way::join_three : Way::split_three);
        spec_.unit = static_cast<std::uint8_t>(parts == 2 ? 4 : 1 << any(0, 2));
        const std::int64_t row = args_.count * kTileSide, distance = row + any(0, 70);
        (joins ? args_.src_row : args_.dst_row) = distance;
        args_.src_step = joins ? kTileSide : parts * kTileSide;
        args_.dst_step = joins ? parts * kTileSide : kTileSide;
        const std::int64_t apart = (parts - 1) * distance + row;
        src_bytes_ = joins ? apart : parts * row;
        dst_bytes_ = joins ? parts * row : apart;
        args_.lines = any(1, 3);
        args_.src_line = src_bytes_ + any(0, 70);
        args_.dst_line = dst_bytes_ + any(0, 70);
        src_bytes_ += (args_.lines - 1) * args_.src_line;
        dst_bytes_ += (args_.lines - 1) * args_.dst_line;
    }

    std::minstd_rand random_;
    MoveSpec spec_ = {};
    MoveArgs args_ = {};
    std::vector<std::int64_t> src_rows_ = {};
    std::vector<std::int64_t> dst_rows_ = {};
    std::int64_t src_bytes_ = 0;
    std::int64_t dst_bytes_ = 0;
};

// Bit by bit as plain loops say, and between pages that no access survives.
TEST_CASE("any move at any level") {
    for (unsigned seed = 1; seed < 4000; ++seed) {
        CAPTURE(seed);
        for (const Isa isa : {Isa::avx2, Isa::avx512}) {
            if (isa > usable_isa()) continue;
            Problem problem(seed);
            const std::string name = move_kernel(problem.spec(), isa)->name();
            CAPTURE(name);
            for (const Fence fence : {Fence::before, Fence::after}) problem.check(isa, fence);
        }
    }
}

TEST_CASE("a kernel of this thread is the one that was asked for") {
    for (int turn = 0; turn < 2; ++turn) {
        for (std::int64_t bytes = 4; bytes <= 2000; bytes += 4) {
            const MoveSpec spec{.way = Way::group, .unit = 2, .src_bytes = 4, .dst_bytes = bytes};
            CHECK(move_kernel(spec).name() == move_kernel(spec, usable_isa())->name());
        }
    }
}

}  // namespace
}  // namespace dlprim
