#include "moves/move_kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "jit/cache.h"
#include "jit/element_reference.h"
#include "jit/pricing.h"
#include "jit/profile.h"
#include "moves/emit_moves.h"

namespace dlprim {
namespace {

constexpr double kCyclesPerCall = 40;
constexpr double kBytesPerCycle = 12;
constexpr CacheBounds kBounds{.entries = 4096, .bytes = std::int64_t{64} << 20};

struct MoveKey {
    MoveSpec spec = {};
    Isa isa = Isa::scalar;

    friend bool operator==(const MoveKey&, const MoveKey&) = default;
};

struct MoveKeyHash {
    std::size_t operator()(const MoveKey& key) const noexcept {
        const MoveSpec& spec = key.spec;
        const unsigned flags = spec.rounds + 2U * spec.second_is_zero + 4U * spec.reads_ahead +
                               8U * spec.lists_src + 16U * spec.lists_dst +
                               32U * static_cast<unsigned>(spec.way);
        const std::uint64_t packed =
            ((static_cast<std::uint64_t>(spec.dst_bytes) * 256 + flags) * 128 + spec.src_bytes) *
                16 +
            spec.unit;
        return (packed * 8 + static_cast<unsigned>(key.isa)) * 0x9e3779b97f4a7c15;
    }
};

using MoveCache = Cache<MoveKey, MoveKernel, MoveKeyHash>;

MoveCache& cache() { return process_cache<MoveCache, kBounds>(); }

// The level of the code for a level.
Isa move_isa(Isa isa) { return isa >= Isa::avx512 ? Isa::avx512 : std::min(isa, Isa::avx2); }

// `bytes` of a result from the one at `at` on, from a row of src.
void take(const MoveSpec& spec, const char* row, std::int64_t at, std::int64_t bytes, char* to) {
    if (!spec.rounds) {
        std::memcpy(to, row + at, static_cast<std::size_t>(bytes));
        return;
    }
    for (std::int64_t i = 0; i < bytes / 2; ++i) {
        float value = 0;
        std::memcpy(&value, row + 2 * at + 4 * i, sizeof value);
        set_element(DType::bf16, to, i, value);
    }
}

void reference_tile(const MoveSpec& spec, const char* src, char* dst, const MoveArgs& args) {
    constexpr std::int64_t kHalf = 2;
    const std::int64_t unit = std::min<std::int64_t>(spec.unit, 4);
    const std::int64_t halves = spec.unit / unit;  // of a square on either side
    for (std::int64_t column = 0; column * spec.unit < spec.src_bytes; ++column) {
        for (std::int64_t row = 0; row * unit < spec.dst_bytes; ++row) {
            alignas(kHalf) char made[4] = {};
            const std::int64_t line = row / halves;
            const char* const from =
                src + (spec.lists_src ? args.src_rows[line] : line * args.src_row);
            for (std::int64_t i = 0; i < halves && !(spec.second_is_zero && row % 2 == 1); ++i) {
                const std::int64_t at = column * spec.unit + i * unit;
                const std::int64_t left =
                    std::min<std::int64_t>(spec.src_bytes - at, unit / halves);
                if (left > 0) take(spec, from, at + row % halves * kHalf, left, made + i * kHalf);
            }
            std::memcpy(
                dst + (spec.lists_dst ? args.dst_rows[column] : column * args.dst_row) + row * unit,
                made, static_cast<std::size_t>(unit));
        }
    }
}

void reference_groups(const MoveSpec& spec, const char* src, char* dst, const MoveArgs& args) {
    for (std::int64_t word = 0; word * 4 < spec.dst_bytes; ++word) {
        char made[4] = {};
        for (std::int64_t byte = 0; byte < spec.src_bytes; byte += spec.unit) {
            take(spec, src + byte / spec.unit * args.src_row, word * spec.unit, spec.unit,
                 made + byte);
        }
        std::memcpy(dst + word * 4, made, sizeof made);
    }
}

void reference_parts(const MoveSpec& spec, const char* src, char* dst, const MoveArgs& args) {
    using Way = MoveSpec::Way;
    const std::int64_t unit = spec.unit;
    const bool joins = spec.way == Way::join_three || spec.way == Way::join_two;
    const std::int64_t parts = spec.way == Way::join_two || spec.way == Way::split_two ? 2 : 3;
    for (std::int64_t i = 0; i < kTileSide / unit; ++i) {
        for (std::int64_t part = 0; part < parts; ++part) {
            const std::int64_t joined = (parts * i + part) * unit;
            const std::int64_t row = part * (joins ? args.src_row : args.dst_row) + i * unit;
            std::memcpy(dst + (joins ? joined : row), src + (joins ? row : joined),
                        static_cast<std::size_t>(unit));
        }
    }
}

}  // namespace

void reference_move(const MoveSpec& spec, const MoveArgs& args) {
    MoveArgs it = args;
    if (args.lines > 1) {
        it.lines = 1;
        for (std::int64_t line = 0; line < args.lines; ++line) {
            reference_move(spec, it);
            it.src += args.src_line;
            it.dst += args.dst_line;
        }
        return;
    }
    for (std::int64_t i = 0; i < args.count; ++i) {
        const char* const src = args.src + i * args.src_step;
        char* const dst = args.dst + i * args.dst_step;
        it.src_rows = args.src_rows + i * args.src_rows_step / 8;
        it.dst_rows = args.dst_rows + i * args.dst_rows_step / 8;
        switch (spec.way) {
            case MoveSpec::Way::transpose: reference_tile(spec, src, dst, it); break;
            case MoveSpec::Way::group: reference_groups(spec, src, dst, it); break;
            default: reference_parts(spec, src, dst, it);
        }
    }
}

MoveKernel::MoveKernel(const MoveSpec& spec, Isa isa) : spec_(spec), isa_(isa) {
    if (isa_ == Isa::scalar) return;
    code_ = Code(emit_move(spec_, isa_), pages_for_profile());
    entry_ = code_.entry<Function>();
}

void MoveKernel::operator()(const MoveArgs& args) const {
    if (Pricing* const pricing = Pricing::current())
        return pricing->add(cycles(args.count * args.lines));
    if (entry_ != nullptr) {
        entry_(&args);
    } else {
        reference_move(spec_, args);
    }
}

double MoveKernel::cycles(std::int64_t count) const {
    const bool is_tile = spec_.way == MoveSpec::Way::transpose;
    const auto rows = static_cast<double>(is_tile ? kTileSide / spec_.unit : 1);
    const double bytes = static_cast<double>(count * spec_.dst_bytes) * rows;
    return kCyclesPerCall + bytes / kBytesPerCycle;
}

std::string MoveKernel::name() const {
    constexpr std::array kWays = {"_transpose",   "_group",    "_join_three",
                                  "_split_three", "_join_two", "_split_two"};
    return "move_" + std::string(name_of(isa_)) + kWays.at(static_cast<std::size_t>(spec_.way)) +
           std::to_string(spec_.unit) + "_" + std::to_string(spec_.src_bytes) + "x" +
           std::to_string(spec_.dst_bytes) + (spec_.rounds ? "_rounded" : "") +
           (spec_.second_is_zero ? "_alone" : "") + (spec_.lists_src ? "_from_list" : "") +
           (spec_.lists_dst ? "_to_list" : "") + (spec_.reads_ahead ? "_ahead" : "");
}

std::shared_ptr<const MoveKernel> move_kernel(const MoveSpec& spec, Isa isa) {
    const MoveKey key{spec, move_isa(isa)};
    return cache().get_or_create(key, [&] {
        return generated_kernel(
            [&] { return std::make_shared<const MoveKernel>(key.spec, key.isa); });
    });
}

const MoveKernel& move_kernel(const MoveSpec& spec) {
    struct Recent {
        MoveSpec spec = {};
        std::shared_ptr<const MoveKernel> kernel = nullptr;
    };
    struct Set {
        std::array<Recent, 4> kernels = {};
        std::size_t next = 0;
    };
    static thread_local std::array<Set, 16> sets;
    Set& set = sets[MoveKeyHash()({spec, Isa::scalar}) >> 60];
    for (const Recent& it : set.kernels) {
        if (it.spec == spec && it.kernel != nullptr) return *it.kernel;
    }
    Recent& it = set.kernels[set.next++ % set.kernels.size()];
    it = {spec, move_kernel(spec, usable_isa())};
    return *it.kernel;
}

CacheInfo move_cache_info() { return cache().info(); }

void move_cache_clear() { cache().clear(); }

}  // namespace dlprim
