// Generated code that moves what is no row: tiles of a matrix, transposed on their way, and rows
// whose neighbours come to share words (VNNI form). Both are what a copy from plain storage to
// blocked needs beyond copying rows, and both are bound by how many lines of a cache they touch:
// so a tile is a cache line in either direction, whatever the element and the ISA level. A spec is
// the cache key, a kernel is immutable and may be called from any number of threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "jit/cache.h"
#include "jit/code.h"
#include "jit/isa.h"

namespace dlprim {

inline constexpr int kTileSide = 64;  // bytes of a row of a tile, in src and in dst

// Bytes count elements of dst: a float32 that is rounded has two.
struct MoveSpec {
    enum class Way : std::uint8_t {
        // dst[j][i] = src[i][j], in units.
        transpose,
        // dst[j] is the word of src[0][j], src[1][j] and so on, in units of one byte or two.
        group,
        // Three rows to triples, as the channels of an image are, and back: too narrow for tiles,
        // whose rows are 64 bytes here, too. Of two rows units have four bytes.
        join_three,
        split_three,
        join_two,
        split_two,
    };

    Way way = Way::transpose;
    // Bytes that stay together: an element, or a word of neighbours. Units of eight are squares of
    // two by two elements, which are transposed as well. What a last unit lacks of src is zero.
    std::uint8_t unit = 4;
    bool rounds = false;          // float32 in src becomes bfloat16
    bool second_is_zero = false;  // every other row of src counts as zeros; with a list of them
    bool lists_src = false;       // rows of src are at no single distance
    bool lists_dst = false;
    bool reads_ahead = false;  // rows are too many or too short for hardware to fetch them
    std::uint8_t src_bytes = kTileSide;  // of a row of src in a tile, or of those in a word
    std::int64_t dst_bytes = kTileSide;  // of a row of dst: of a tile, or any

    std::int64_t scale() const { return rounds ? 2 : 1; }  // bytes of src for one of dst

    friend bool operator==(const MoveSpec&, const MoveSpec&) = default;
};

// What generated code reads.
struct MoveArgs {
    const char* src = nullptr;
    char* dst = nullptr;
    // From row to row of a tile, or of those that make a word.
    std::int64_t src_row = 0;
    std::int64_t dst_row = 0;
    // Instead of these, where the rows of a tile begin.
    const std::int64_t* src_rows = nullptr;
    const std::int64_t* dst_rows = nullptr;
    std::int64_t count = 1;  // tiles, or rows of dst; at least one
    // From one to the next: bytes of either side, and bytes of the lists of rows.
    std::int64_t src_step = 0;
    std::int64_t dst_step = 0;
    std::int64_t src_rows_step = 0;
    std::int64_t dst_rows_step = 0;
    // Of pairs and triples all of that for so many lines, and bytes from one to the next on either
    // side.
    std::int64_t lines = 1;
    std::int64_t src_line = 0;
    std::int64_t dst_line = 0;
};

class MoveKernel {
public:
    // Generates the kernel. Prefer move_kernel(), which caches.
    MoveKernel(const MoveSpec& spec, Isa isa);

    void operator()(const MoveArgs& args) const;

    // Of a call, about: what Pricing takes for it.
    double cycles(std::int64_t count) const;

    // Unique per spec and ISA.
    std::string name() const;
    // Empty for scalar.
    std::span<const std::uint8_t> code() const { return code_.bytes(); }
    // Of code.
    std::int64_t bytes() const { return std::ssize(code()); }
    std::int64_t mapped_before() const { return code_.mapped_before(); }  // as Code has it

private:
    using Function = void(const MoveArgs*);

    MoveSpec spec_;
    Isa isa_;
    Code code_;
    Function* entry_ = nullptr;
};

// The cached kernel for `spec` on `isa`, which is at most usable_isa().
std::shared_ptr<const MoveKernel> move_kernel(const MoveSpec& spec, Isa isa);

// The same on usable_isa(), found faster where this thread asked for it lately; it is the caller's
// until this thread asks for another one.
const MoveKernel& move_kernel(const MoveSpec& spec);

CacheInfo move_cache_info();
void move_cache_clear();

// Plain loops: what runs where there are no vectors, and the oracle of tests.
void reference_move(const MoveSpec& spec, const MoveArgs& args);

}  // namespace dlprim
