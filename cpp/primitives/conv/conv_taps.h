// One axis of a convolution as arithmetic: which outputs read which inputs through which tap of
// the filter. Forward and backward-data differ in nothing else. Forward, output i reads inputs
// i * stride + offset. Backward, the gradient of input h comes from outputs (h + pad - r *
// dilation) / stride where that divides, so inputs h with the same remainder form a phase and see
// an ordinary convolution with a subset of the taps. Taps that lie outside the input are left out:
// `cover` cuts the outputs of a phase into ranges whose taps all exist.
#pragma once

#include <cstdint>
#include <vector>

#include "primitives/tensor/partition.h"

namespace dlprim {

struct Tap {
    std::int64_t index = 0;   // in the filter
    std::int64_t offset = 0;  // output i of the phase reads input i * in_step + offset

    friend bool operator==(const Tap&, const Tap&) = default;
};

struct AxisPhase {
    std::int64_t out_begin = 0;  // outputs out_begin + i * out_step, i < count
    std::int64_t out_step = 1;
    std::int64_t count = 0;
    std::int64_t in_step = 1;
    std::vector<Tap> taps;
};

struct Axis {
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::vector<AxisPhase> phases;  // together they hold every output once
};

struct Filter {
    std::int64_t size = 1;
    std::int64_t stride = 1;
    std::int64_t pad = 0;  // in front
    std::int64_t dilation = 1;
};

Axis forward_axis(std::int64_t in, std::int64_t out, const Filter& filter);
// in: extent of diff_dst, out: extent of diff_src.
Axis backward_axis(std::int64_t in, std::int64_t out, const Filter& filter);

// The part of the input that some output reads: strides beyond the filter leave gaps.
double part_read(const Axis& axis);

// The i of a phase whose input through `tap` exists.
Range valid_outputs(const Axis& axis, const AxisPhase& phase, const Tap& tap);
// The taps of output i that exist.
std::vector<Tap> valid_taps(const Axis& axis, const AxisPhase& phase, std::int64_t i);

// Outputs of a phase that add the same taps.
struct Piece {
    Range outputs;
    std::vector<Tap> taps;
    bool first = false;  // nothing was added to these outputs before
    bool last = false;   // nothing will be

    friend bool operator==(const Piece&, const Piece&) = default;
};

// How pieces cover a phase. Long ones overlap: each tap adds to all outputs it can reach, for
// which a sum is left and taken up again. Disjoint ones finish each output in one go, for which
// those at the rim are short.
enum class Cover : std::uint8_t { overlapping, disjoint };

// In an overlapping cover the first piece spans the whole phase, and so does the last one, which
// has no taps, unless one piece does it all.
std::vector<Piece> cover(const Axis& axis, const AxisPhase& phase, Cover kind);

}  // namespace dlprim
