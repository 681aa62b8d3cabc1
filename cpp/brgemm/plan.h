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
#include <string_view>
#include <vector>

#include "brgemm/multiply.h"
#include "brgemm/registers.h"
#include "brgemm/spec.h"
#include "jit/isa.h"
#include "jit/machine.h"

namespace dlprim {

// A count that code reads when it is called.
inline constexpr std::int64_t kReadAtCall = 0;

struct RowGroup {
    Tile tile;
    std::int64_t count = 0;       // consecutive tiles of this height
    int unroll = 0;               // steps of one word per loop iteration; all when there is no loop
    double cycles = 0;            // that a step of a tile takes, by the model
    std::string_view bound = {};  // what it waits for: "multiplies", "loads", "L2", ...

    friend bool operator==(const RowGroup&, const RowGroup&) = default;
};

struct ColumnGroup {
    std::int64_t count = 0;  // consecutive column blocks of this width
    int vectors = 0;
    bool masked = false;  // the last vector is partial (then count is 1)
    std::vector<RowGroup> rows;

    friend bool operator==(const ColumnGroup&, const ColumnGroup&) = default;
};

struct BrgemmPlan {
    BrgemmSpec spec;  // validated
    Isa isa = Isa::scalar;
    Multiply multiply = Multiply::fma;
    int lanes = 1;       // columns per vector
    int tail_lanes = 0;  // columns in the partial vector, 0 when n fills its vectors
    std::vector<ColumnGroup> columns;
    bool reads_turns = false;  // of loops along k, when it is called

    // The tile that does most of the work.
    Tile main_tile() const;

    friend bool operator==(const BrgemmPlan&, const BrgemmPlan&) = default;
};

// `spec` must be validated.
BrgemmPlan make_plan(const BrgemmSpec& spec, Isa isa, const Machine& machine);

// Whether kernels of the same products for other columns add them up in the same order: they have
// the same bits then.
bool sums_alike(const BrgemmPlan& one, const BrgemmPlan& other);

// Whether every sum has one register, which takes its products in their order.
bool sums_in_order(const BrgemmPlan& plan);

std::string to_string(const BrgemmPlan& plan);

}  // namespace dlprim
