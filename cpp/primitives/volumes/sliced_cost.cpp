#include "primitives/volumes/sliced_cost.h"

#include <algorithm>
#include <limits>

#include "jit/isa.h"
#include "jit/machine.h"
#include "primitives/mapping/instruction_form.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// How much longer arithmetic takes than its instructions; cycles of an element that is copied, of a
// call on slices, and of one on images as they are; how many fewer products Winograd's algorithm
// has, from so many channels on; up to how many channels the gradient of src is summed in windows
// of neighbours.
constexpr double kWaits = 1.6;
constexpr double kElement = 2.5;
constexpr double kSlicedCall = 250e3;
constexpr double kImagesCall = 25e3;
constexpr double kFewerProducts = 2;
constexpr std::int64_t kWinogradChannels = 16;
constexpr std::int64_t kFewChannels = 8;

bool is_of_single_channels(const VolumeShape& it) {
    return it.groups > 1 && it.group_C() == 1 && it.group_K() == 1;
}

// How much longer vectors are than what is in them.
double lost_lanes(const VolumeShape& it, PassKind pass, std::int64_t lanes) {
    std::int64_t columns = pass == PassKind::backward_data ? it.group_C() : it.group_K();
    const bool has_windows =
        pass == PassKind::backward_data && it.groups == 1 && columns <= kFewChannels;
    if (has_windows) columns *= it.axes[2].taps;
    if (is_of_single_channels(it)) columns = std::min(it.groups, lanes);
    return static_cast<double>(rounded_up(columns, lanes)) / static_cast<double>(columns);
}

double products_of(const VolumeShape& it) {
    const VolumeAxis &down = it.axes[1], &across = it.axes[2];
    const bool is_winograd = down.taps == 3 && across.taps == 3 && down.step * across.step == 1 &&
                             down.spread * across.spread == 1 &&
                             std::min(it.group_C(), it.group_K()) >= kWinogradChannels;
    return it.flops() / 2 / (is_winograd ? kFewerProducts : 1);
}

// Elements of slices that are copied.
double copied(const VolumeShape& it, PassKind pass) {
    const VolumeAxis& depth = it.axes[0];
    const bool to_src = pass == PassKind::backward_data;
    const std::int64_t src = it.C * it.axes[1].extent * it.axes[2].extent;
    const std::int64_t dst = it.K * it.axes[1].results * it.axes[2].results;
    const std::int64_t deep = it.N * (to_src ? depth.extent : depth.results);
    const auto taps = static_cast<double>(depth.taps);
    const auto of_src = static_cast<double>(deep * src), of_dst = static_cast<double>(deep * dst);
    if (to_src) return of_src + of_dst * taps / static_cast<double>(depth.step);
    return of_src * taps + of_dst;
}

}  // namespace

double cycles_by_slices(const VolumeShape& shape, DType dtype, PassKind pass) {
    if (is_of_single_channels(shape) && shape.axes[0].taps > 1) {
        return std::numeric_limits<double>::infinity();
    }
    const InstructionForm& with = instruction_for(dtype, dtype, usable_isa());
    const double lost = lost_lanes(shape, pass, with.extent(LoopRole::column));
    const bool has_slices = shape.axes[0].extent > 1 || shape.axes[0].taps > 1;
    return (has_slices ? kSlicedCall : kImagesCall) + kElement * copied(shape, pass) +
           kWaits * products_of(shape) * lost /
               (with.products() * with.starts_per_cycle(this_machine()));
}

}  // namespace dlprim
