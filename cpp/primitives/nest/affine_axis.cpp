#include "primitives/nest/affine_axis.h"

#include <algorithm>
#include <set>

namespace dlprim {
namespace {

std::int64_t ceil_div(std::int64_t dividend, std::int64_t divisor) {
    return dividend > 0 ? (dividend + divisor - 1) / divisor : -(-dividend / divisor);
}

std::vector<AxisPiece> disjoint(const Axis& axis, const AxisPhase& phase) {
    std::set<std::int64_t> cuts{0, phase.count};
    for (const Shift& shift : phase.shifts) {
        const Range range = outputs_of(axis, phase, shift);
        if (range.size() == 0) continue;
        cuts.insert(range.begin);
        cuts.insert(range.end);
    }
    std::vector<AxisPiece> pieces;
    for (auto begin = cuts.begin(), end = std::next(begin); end != cuts.end(); ++begin, ++end) {
        pieces.push_back({{*begin, *end}, shifts_at(axis, phase, *begin), true, true});
    }
    return pieces;
}

std::vector<AxisPiece> overlapping(const Axis& axis, const AxisPhase& phase) {
    const Range all{0, phase.count};
    std::vector<AxisPiece> pieces{{all, {}, true, false}};
    for (const Shift& shift : phase.shifts) {
        const Range range = outputs_of(axis, phase, shift);
        if (range.size() == 0) continue;
        const auto same = std::find_if(pieces.begin(), pieces.end(), [&](const AxisPiece& piece) {
            return piece.outputs == range;
        });
        if (same != pieces.end()) {
            same->shifts.push_back(shift);
        } else {
            pieces.push_back({range, {shift}, false, false});
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

Axis reading_axis(std::int64_t in, std::int64_t out, const AxisSum& sum) {
    AxisPhase phase{
        .out_begin = 0, .out_step = 1, .count = out, .in_step = sum.factor, .shifts = {}};
    for (std::int64_t i = 0; i < sum.shifts; ++i) {
        phase.shifts.push_back({i, i * sum.shift_factor + sum.constant});
    }
    return {in, out, {phase}};
}

Axis solved_axis(std::int64_t in, std::int64_t out, const AxisSum& sum) {
    Axis axis{in, out, {}};
    for (std::int64_t first = 0; first < std::min(sum.factor, out); ++first) {
        AxisPhase phase{.out_begin = first,
                        .out_step = sum.factor,
                        .count = (out - first + sum.factor - 1) / sum.factor,
                        .in_step = 1,
                        .shifts = {}};
        for (std::int64_t i = 0; i < sum.shifts; ++i) {
            const std::int64_t reach = first - sum.constant - i * sum.shift_factor;
            if (reach % sum.factor == 0) phase.shifts.push_back({i, reach / sum.factor});
        }
        axis.phases.push_back(phase);
    }
    return axis;
}

double part_read(const Axis& axis) {
    double part = 0;
    for (const AxisPhase& phase : axis.phases) {
        part = std::max(
            part, static_cast<double>(phase.shifts.size()) / static_cast<double>(phase.in_step));
    }
    return std::min(part, 1.0);
}

Range outputs_of(const Axis& axis, const AxisPhase& phase, const Shift& shift) {
    const std::int64_t begin = std::max<std::int64_t>(ceil_div(-shift.offset, phase.in_step), 0);
    const std::int64_t end = std::min(ceil_div(axis.in - shift.offset, phase.in_step), phase.count);
    return {begin, std::max(begin, end)};
}

std::vector<Shift> shifts_at(const Axis& axis, const AxisPhase& phase, std::int64_t i) {
    std::vector<Shift> shifts;
    for (const Shift& shift : phase.shifts) {
        const Range range = outputs_of(axis, phase, shift);
        if (range.begin <= i && i < range.end) shifts.push_back(shift);
    }
    return shifts;
}

std::vector<AxisPiece> cover(const Axis& axis, const AxisPhase& phase, Cover kind) {
    return kind == Cover::disjoint ? disjoint(axis, phase) : overlapping(axis, phase);
}

}  // namespace dlprim
