// A place that is a sum of two indices, factor * i + shift_factor * j + constant, as arithmetic:
// which outputs read which inputs through which shift j. Where the sum stands in an operand, output
// i reads input factor * i + offset for each shift. Where it stands in the result, the sum is
// solved for i: output h gets what input (h - constant - shift_factor * j) / factor gives where
// that divides, so outputs with the same remainder form a phase and read with a step of 1 through
// some of the shifts. Places outside the input are left out: `cover` cuts the outputs of a phase
// into ranges whose shifts all exist.
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/tensor/partition.h"

namespace dlprim {

struct Shift {
    std::int64_t index = 0;   // j
    std::int64_t offset = 0;  // output i of the phase reads input i * in_step + offset

    friend bool operator==(const Shift&, const Shift&) = default;
};

struct AxisPhase {
    std::int64_t out_begin = 0;  // outputs out_begin + i * out_step, i < count
    std::int64_t out_step = 1;
    std::int64_t count = 0;
    std::int64_t in_step = 1;
    std::vector<Shift> shifts;
};

struct Axis {
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::vector<AxisPhase> phases;  // together they hold every output once
};

struct AxisSum {
    std::int64_t shifts = 1;  // extent of j
    std::int64_t factor = 1;  // at least 1, as the other one
    std::int64_t shift_factor = 1;
    std::int64_t constant = 0;
};

// in: extent of the sum, out: extent of i.
Axis reading_axis(std::int64_t in, std::int64_t out, const AxisSum& sum);
// in: extent of i, out: extent of the sum.
Axis solved_axis(std::int64_t in, std::int64_t out, const AxisSum& sum);

// The part of the input that some output reads: factors beyond the shifts leave gaps.
double part_read(const Axis& axis);

// The i of a phase whose input through `shift` exists.
Range outputs_of(const Axis& axis, const AxisPhase& phase, const Shift& shift);
// The shifts of output i that exist.
std::vector<Shift> shifts_at(const Axis& axis, const AxisPhase& phase, std::int64_t i);

// Outputs of a phase that add through the same shifts.
struct AxisPiece {
    Range outputs;
    std::vector<Shift> shifts;
    bool first = false;  // nothing was added to these outputs before
    bool last = false;   // nothing will be

    friend bool operator==(const AxisPiece&, const AxisPiece&) = default;
};

// How pieces cover a phase. Long ones overlap: each shift adds to all outputs it can reach, for
// which a sum is left and taken up again. Disjoint ones finish each output in one go, for which
// those at the rim are short.
enum class Cover : std::uint8_t { overlapping, disjoint };

// In an overlapping cover the first piece spans the whole phase, and so does the last one, which
// has no shifts, unless one piece does it all.
std::vector<AxisPiece> cover(const Axis& axis, const AxisPhase& phase, Cover kind);

}  // namespace dlprim
