// What was decided for a spec on an ISA: the register tiles that cover C, how their k loop is
// unrolled, and which register holds what. This is the only place that counts registers; the
// emitter obeys. Planning is pure, so it is testable on any machine.
//
// C is cut into column blocks of one to four vectors and each column block into row tiles of at
// most two heights. A small model of the core (FMAs, loads and shuffles per cycle, FMA latency,
// bandwidth of the L2 cache for B) ranks the candidates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "brgemm/isa.h"
#include "brgemm/spec.h"

namespace dlprim {

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

// First register of each role. The epilogue runs when the operands of A and B are no longer
// needed and uses the registers from `b` on.
struct RegisterMap {
    int accumulators = 0;
    int b = 0;
    int a = 0;      // one element of A in every lane
    int quads = 0;  // four elements of A, repeated in every 128-bit lane
    int total = 0;
};

struct RowGroup {
    Tile tile;
    std::int64_t count = 0;  // consecutive tiles of this height
    int unroll = 0;          // k steps per loop iteration; k itself when there is no loop
};

struct ColumnGroup {
    std::int64_t count = 0;  // consecutive column blocks of this width
    int vectors = 0;
    bool masked = false;  // the last vector is partial (then count is 1)
    std::vector<RowGroup> rows;
};

struct BrgemmPlan {
    BrgemmSpec spec;  // validated
    Isa isa = Isa::scalar;
    int lanes = 1;       // elements per vector
    int tail_lanes = 0;  // elements in the partial vector, 0 when n fills its vectors
    std::vector<ColumnGroup> columns;

    // The tile that does most of the work.
    Tile main_tile() const;
};

// The ISA level whose instructions a kernel for `spec` uses: the highest useful one at most `isa`.
Isa kernel_isa(const BrgemmSpec& spec, Isa isa);

RegisterMap register_map(const BrgemmSpec& spec, Isa isa, const Tile& tile);

// `spec` must be validated.
BrgemmPlan make_plan(const BrgemmSpec& spec, Isa isa, Microarchitecture microarchitecture);

std::string to_string(const BrgemmPlan& plan);

}  // namespace dlprim
