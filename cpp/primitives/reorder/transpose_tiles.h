// Transposition in registers, which is what separates plain storage from blocked: serial pieces of
// a reorder (reorder.h) that have been cut to fit a cache. The vector code is written once in
// Highway and compiled once per vector width; which of the compilations runs is decided by the
// library's own ISA level, as per_isa.h says.
#pragma once

#include <cstdint>
#include <limits>

#include "jit/isa.h"

namespace dlprim {

// Where rows begin, in bytes from the first: `near` apart, and after `period` of them `far`. Taps
// of a filter are near and its channels far, where they are one row of plain storage.
struct Places {
    std::int64_t near = 0;
    std::int64_t period = std::numeric_limits<std::int64_t>::max();
    std::int64_t far = 0;

    std::int64_t at(std::int64_t row) const {
        return row < period ? row * near : row / period * far + row % period * near;
    }
};

// dst[column][row] = src[row][column]; rows and columns count elements of src. src and dst must not
// overlap.
struct Transposition {
    const char* src = nullptr;
    Places src_rows = {};
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    char* dst = nullptr;
    Places dst_rows = {};
    std::int64_t element = 4;    // bytes of one in src
    std::int64_t taps = 1;       // of tap_pairs
    bool is_read_ahead = false;  // rows are too many or too short for hardware to fetch them
};

enum class Transposing : std::uint8_t {
    // Rows of dst hold words: one element of four bytes, or two or four smaller neighbours of a row
    // of src side by side (VNNI form). The last word is filled up with zeros.
    words,
    rounded_words,  // the same of float32 rounded to pairs of bfloat16
    // Columns of src are [channel][tap] of two-byte elements or float32 to be rounded; rows of dst
    // are [channel / 2][tap], whose words pair neighbouring channels.
    tap_pairs,
    rounded_tap_pairs,
    halves,  // of elements of two bytes
    // From pairs of rows to pairs of columns: [ceil(rows / 2)][columns][2] of two-byte elements
    // becomes [ceil(columns / 2)][rows][2]. src_rows and dst_rows are those of pairs.
    pairs,
    // One side is three long, as the channels of a colour image are, and dense: too narrow for
    // squares, so whole vectors are interleaved. Elements of two or four bytes.
    join_three,   // rows == 3
    split_three,  // columns == 3
};

using TransposeFunction = void (*)(const Transposition& matrix);

// For an ISA level that this machine can run; `element` is that of `src`.
TransposeFunction word_function(Isa isa, Transposing way);  // those to rounded_tap_pairs
TransposeFunction transpose_function(Isa isa, Transposing way, std::int64_t element);

}  // namespace dlprim
