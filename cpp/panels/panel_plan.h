// How a product of a few rows with a panel of weights goes on an ISA: in which form the rows come,
// how many vectors of the panel are under way together, and which register holds what. A plan is a
// pure function of the spec and the ISA.
//
// Rows are rounded group by group to 15 bits, x = 128 h + l with h and l of 8, so that products are
// exact integers of dot products of bytes: as many instructions again, behind a memory that is
// slower than both, for an error a hundredth of that of 8 bits.
#pragma once

#include <cstdint>

#include "jit/activation.h"
#include "jit/dtype.h"
#include "jit/isa.h"
#include "panels/panel_format.h"

namespace dlprim {

// What one step multiplies: weights of a word with those of a row.
enum class PanelMethod : std::uint8_t {
    dots,    // four bytes by four, added to a sum of 32 bits
    pairs,   // two bytes by two, whose sums of 16 bits last for 32 weights of 4 bits
    words,   // two words of 16 bits by two: 8-bit weights without dot products of bytes
    floats,  // bfloat16 weights, widened
    halves,  // two bfloat16 by two, where rows are bfloat16, too
};

PanelMethod panel_method(const PanelFormat& format, DType src, Isa isa);

// A group of a row of src as kernels read it: the numbers, then, of integers, their scale and what
// the zero of the weights adds to their sums (float32, int32).
struct RowRecord {
    PanelMethod method = PanelMethod::dots;
    std::uint8_t group = 32;
    std::uint8_t x_bits = 15;  // or 8

    bool is_integer() const {
        return method != PanelMethod::floats && method != PanelMethod::halves;
    }
    // Parts of a number, h in front of l.
    int parts() const {
        const bool bytes = method == PanelMethod::dots || method == PanelMethod::pairs;
        return bytes && x_bits == 15 ? 2 : 1;
    }
    std::int64_t number_bytes() const {
        if (method == PanelMethod::floats) return kFloat;
        return method == PanelMethod::words || method == PanelMethod::halves ? 2 : 1;
    }
    std::int64_t part_at(int part) const { return part * group * number_bytes(); }
    std::int64_t scale_at() const { return part_at(parts()); }
    std::int64_t zero_at() const { return scale_at() + kFloat; }
    std::int64_t bytes() const { return is_integer() ? zero_at() + kWord : scale_at(); }
    // The largest number: 127 in h, and in l what still rounds to it.
    int most() const { return x_bits == 15 ? 127 * 128 + 63 : 127; }

    friend bool operator==(const RowRecord&, const RowRecord&) = default;
};

// Words hold 0 2 1 3 of four neighbours: those that the even and the odd bytes of a word of weights
// are multiplied with.
constexpr std::int64_t place_in_words(std::int64_t k) {
    return k / 4 * 4 + (k % 4 == 1 ? 2 : k % 4 == 2 ? 1 : k % 4);
}

struct PanelSpec {
    PanelFormat format = {};
    std::uint8_t x_bits = 15;
    std::uint8_t rows = 1;
    std::uint8_t columns = kPanelColumns;  // that dst has of the panel
    bool bias = false;
    Activation activation = Activation::none;
    DType src = DType::f32;  // or bfloat16; of the result, too

    friend bool operator==(const PanelSpec&, const PanelSpec&) = default;
};

// Of one row and one vector, from the first register on: parts of the sum, and the sum itself.
struct PanelPlan {
    PanelSpec spec = {};
    Isa isa = Isa::scalar;
    RowRecord record = {};
    int lanes = 1;
    int vectors = kPanelColumns;  // of the panel
    int width = 1;                // of them under way together
    int per_sum = 1;              // registers
    bool has_total = false;       // the last of these outlives a piece of 32 weights
};

inline constexpr int kPieceWeights = 32;
inline constexpr int kFirstSum = 5;  // registers below it are what steps hold

PanelPlan panel_plan(const PanelSpec& spec, Isa isa);

// Rows of a call at most: as their sums of one vector fit into registers.
int most_panel_rows(const PanelFormat& format, int x_bits, Isa isa);

}  // namespace dlprim
