#include "primitives/conv/conv_taps.h"

#include <algorithm>
#include <set>

namespace dlprim {
namespace {

std::int64_t ceil_div(std::int64_t dividend, std::int64_t divisor) {
    return dividend > 0 ? (dividend + divisor - 1) / divisor : -(-dividend / divisor);
}

std::vector<Piece> disjoint(const Axis& axis, const AxisPhase& phase) {
    std::set<std::int64_t> cuts{0, phase.count};
    for (const Tap& tap : phase.taps) {
        const Range range = valid_outputs(axis, phase, tap);
        if (range.size() == 0) continue;
        cuts.insert(range.begin);
        cuts.insert(range.end);
    }
    std::vector<Piece> pieces;
    for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); ++begin, ++end) {
        pieces.push_back({{*begin, *end}, valid_taps(axis, phase, *begin), true, true});
    }
    return pieces;
}

std::vector<Piece> overlapping(const Axis& axis, const AxisPhase& phase) {
    const Range all{0, phase.count};
    std::vector<Piece> pieces{{all, {}, true, false}};
    for (const Tap& tap : phase.taps) {
        const Range range = valid_outputs(axis, phase, tap);
        if (range.size() == 0) continue;
        const auto same = std::find_if(pieces.begin(), pieces.end(),
                                       [&](const Piece& piece) { return piece.outputs == range; });
        if (same != pieces.end()) {
            same->taps.push_back(tap);
        } else {
            pieces.push_back({range, {tap}, false, false});
        }
    }
    if (pieces.size() == 1) {
        pieces.front().last = true;
    } else {
        pieces.push_back({all, {}, false, true});
    }
    return pieces;
}

}  // namespace

Axis forward_axis(std::int64_t in, std::int64_t out, const Filter& filter) {
    AxisPhase phase{
        .out_begin = 0, .out_step = 1, .count = out, .in_step = filter.stride, .taps = {}};
    for (std::int64_t i = 0; i < filter.size; ++i) {
        phase.taps.push_back({i, i * filter.dilation - filter.pad});
    }
    return {in, out, {phase}};
}

Axis backward_axis(std::int64_t in, std::int64_t out, const Filter& filter) {
    Axis axis{in, out, {}};
    for (std::int64_t first = 0; first < std::min(filter.stride, out); ++first) {
        AxisPhase phase{.out_begin = first,
                        .out_step = filter.stride,
                        .count = (out - first + filter.stride - 1) / filter.stride,
                        .in_step = 1,
                        .taps = {}};
        for (std::int64_t i = 0; i < filter.size; ++i) {
            const std::int64_t reach = first + filter.pad - i * filter.dilation;
            if (reach % filter.stride == 0) phase.taps.push_back({i, reach / filter.stride});
        }
        axis.phases.push_back(phase);
    }
    return axis;
}

double part_read(const Axis& axis) {
    double part = 0;
    for (const AxisPhase& phase : axis.phases) {
        part = std::max(
            part, static_cast<double>(phase.taps.size()) / static_cast<double>(phase.in_step));
    }
    return std::min(part, 1.0);
}

Range valid_outputs(const Axis& axis, const AxisPhase& phase, const Tap& tap) {
    const std::int64_t begin = std::max<std::int64_t>(ceil_div(-tap.offset, phase.in_step), 0);
    const std::int64_t end = std::min(ceil_div(axis.in - tap.offset, phase.in_step), phase.count);
    return {begin, std::max(begin, end)};
}

std::vector<Tap> valid_taps(const Axis& axis, const AxisPhase& phase, std::int64_t i) {
    std::vector<Tap> taps;
    for (const Tap& tap : phase.taps) {
        const Range range = valid_outputs(axis, phase, tap);
        if (range.begin <= i && i < range.end) taps.push_back(tap);
    }
    return taps;
}

std::vector<Piece> cover(const Axis& axis, const AxisPhase& phase, Cover kind) {
    return kind == Cover::disjoint ? disjoint(axis, phase) : overlapping(axis, phase);
}

}  // namespace dlprim
