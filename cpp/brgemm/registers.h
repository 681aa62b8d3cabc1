// Which vector register holds what while a tile is computed. This is the only place that counts
// registers: the planner asks it whether a tile fits, the emitter asks it where things are.
#pragma once

#include "brgemm/multiply.h"
#include "brgemm/spec.h"
#include "jit/isa.h"

namespace dlprim {

// Words of A that one quad load brings.
inline constexpr int kQuad = 4;

// A word of A, a column of a row of B, an accumulator.
inline constexpr int kWordBytes = 4;
inline constexpr int kLineBytes = 64;  // of a cache

struct Tile {
    int rows = 0;
    int vectors = 0;
    // Independent sums per element, taken in turn along k and added up at the end: a small tile
    // has too few accumulators to keep the FMA units busy through their latency.
    int sets = 1;
    // So many rows get their elements of A four at a time: one load of four neighbours, then a
    // shuffle for each. The other rows load every element by itself. One-vector tiles would need
    // a load for each FMA otherwise, which is more than some cores can issue.
    int quad_rows = 0;

    int accumulators() const { return rows * vectors * sets; }

    friend bool operator==(const Tile&, const Tile&) = default;
};

// First register of each role, and how they are used. The epilogue runs when the operands of A and
// B are no longer needed and uses the registers from `b` on.
struct RegisterMap {
    int accumulators = 0;
    int b_sums = 0;  // column sums of B, for the zero point of A
    int a_sums = 0;  // row sums of A, for the zero point of B
    int b = 0;
    int a = 0;        // one word of A in every lane, or those of all rows
    int ones = 0;     // the other factor of the sums
    int product = 0;  // where multiplying and adding are two instructions
    int quads = 0;    // four words of A, repeated in every 128-bit lane
    int total = 0;
    bool embedded = false;  // whole words of A outside quads are memory operands
    // B passes through one register while A of all rows is held: where a tile is wider than it is
    // tall and registers are few.
    bool streams_b = false;
    // Each vector of B is loaded just before it is first used and not all of them ahead of a step:
    // two loads side by side leave one of two units for dot products without work for a moment,
    // and with twelve sums there are too few to catch up (Intel).
    bool spreads_b = false;
    // Both halves of bfloat16 pairs are widened from one load of A and B instead of a load each. It
    // takes two registers more and pays where a word of A meets a single vector.
    bool widens_at_once = false;
};

// Whether the epilogue may turn sums into bytes four vectors at a time.
bool packs_bytes(const BrgemmSpec& spec);

// From the last register down, what the epilogue needs where it runs beside products, that of a few
// rows beside those of the next ones; else 0. Where products take an instruction each and others go
// to other parts of the core.
int registers_beside_products(const BrgemmSpec& spec, Isa isa);

// What a map follows from besides its tile: found once by whoever weighs many tiles.
struct RegisterNeeds {
    RegisterNeeds(const BrgemmSpec& spec, Isa isa);

    Multiply multiply;
    MultiplyCost cost;
    bool avx512;
    bool trans_a;
    bool partial_word;  // of k
    bool sums_b;
    bool sums_a;
    bool spreads_b;
    int beside;    // registers_beside_products()
    int epilogue;  // that it needs beside accumulators and sums
};

RegisterMap register_map(const RegisterNeeds& needs, const Tile& tile);
inline RegisterMap register_map(const BrgemmSpec& spec, Isa isa, const Tile& tile) {
    return register_map(RegisterNeeds(spec, isa), tile);
}

}  // namespace dlprim
