#include "primitives/nest/schedule_cost.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "primitives/nest/contraction_plan.h"

namespace dlprim {
namespace {

// Cycles per byte that a level adds to a computation running in the cache above it. Prefetching
// hides a part of it.
constexpr double kFromL2 = 1.0 / 64;
constexpr double kFromL3 = 1.0 / 24;
constexpr double kFromMemory = 1.0 / 10;
constexpr double kUsable = 0.75;
// Rows and columns of a kernel's register tile, of the order of 14 x 32.
constexpr double kTileRows = 14;
constexpr double kTileColumns = 32;
// How much dearer what no prefetch brings is.
constexpr double kNotFetched = 3;
constexpr double kCyclesPerBodyCall = 60;
// Beyond L2 a byte of C is read, written and at last driven out, and not prefetched: this much more
// than once in and once out. Measured on twenty layers, 2 to 18 choose the faster schedules.
constexpr double kResultSurcharge = 10;
// A schedule does not depend on the number of threads. Of each of these it loses a share for every
// doubling of the time that the thread with most tasks takes, beside equal shares.
constexpr std::array<double, 3> kThreads = {2, 4, 16};
constexpr double kLostToWaiting = 0.02;

// What a transposed product loses where registers are few, for every doubling of a call's sum
// beyond the rows that stay in the L1 cache. Measured on 16 layers and 4 products on Zen 3: twice
// as many rows 1.05 to 1.25 times as long, four times 1.02 to 1.4, 13 to 16 times 1.5 to 1.9.
constexpr double kLostRows = 0.2;
// Where registers are few and rows of C lie apart: the cycles for each byte of C that a kernel call
// takes up and puts down, tile by tile, while multiplications wait. Measured on 16 linear
// layers on Zen 3: sums of 256 and more products in a call are 1.0 to 1.37 times as fast as sums
// of 64; in blocks of C that are one piece of memory they are up to 1.1 times slower.
constexpr double kTakenUp = 1.0 / 16;
// Of a transposed A whose rows are farther apart than hardware looks ahead: the cycles that each
// piece of a row costs which the L1 cache gets from L2 (768 x 512 by 512 x 768: 4.6 ms where 28
// rows go through all columns, 6.0 where 192 do), and which L2 gets from beyond it (1024 x 2048 by
// 2048 x 256: 17 ms in pieces of 28 columns, 11 of 128, 9 of 512).
constexpr std::int64_t kFarRow = 2048;
constexpr double kPieceFromL2 = 6;
constexpr double kPieceFromFar = 150;

}  // namespace

double usable(double cache) { return cache * kUsable; }

double cycles_beyond_l2(double into_l2, double into_l3) {
    return into_l2 * kFromL3 + into_l3 * kFromMemory;
}

double flops_per_cycle(DType dtype, const Machine& machine) {
    const double halves = std::max(2.0, machine.halves_rate);
    return machine.flops_per_cycle() * (dtype == DType::f32 ? 1
                                        : is_int8(dtype)    ? 2 * halves
                                                            : halves);
}

namespace {

constexpr std::size_t kOperands = 3;
using Bytes = std::array<double, kOperands>;  // of A, B, C

// Whether an operand moves along a loop.
bool moves(const Contraction& contraction, std::size_t operand, int loop) {
    const ContractionLoop& it = contraction.loop_at(loop);
    if (operand == 2) return it.c != 0;
    if (loop == contraction.entry_loop) return true;
    if (operand == 1) return it.b != 0;
    // Rows of A that follow the selector, where it does not select among taps of the same rows.
    return it.a != 0 || (loop == contraction.selector_loop && contraction.entry_loop < 0);
}

// The nest with the size of every loop's range at every depth. A search makes thousands: what can
// be known once is in a few flat arrays.
class Nest {
public:
    Nest(const Contraction& contraction, const Schedule& schedule)
        : contraction_(contraction),
          count_(contraction.loops.size()),
          sizes_(count_ * (schedule.levels.size() + 1)) {
        for (std::size_t loop = 0; loop < count_; ++loop) {
            sizes_[loop] =
                static_cast<double>(std::max<std::int64_t>(contraction.loops[loop].extent, 1));
        }
        loops_.reserve(schedule.levels.size());
        footprints_.reserve(schedule.levels.size() + 1);
        footprints_.push_back(footprint_below(0));
        for (const Level& level : schedule.levels) add(level);
    }

    ScheduleTraffic traffic(const Machine& machine) const {
        // Some call can fetch what the next one needs: the loops ahead of a ContractionPlan.
        const bool fetched = contraction_.entry_loop < 0 || sum_trips_ > 1;
        return {.flops = contraction_.flops,
                .calls = calls_,
                .into_l1 = traffic_into(machine.l1),
                .into_l2 = traffic_into(machine.l2),
                .into_l3 = traffic_into(machine.l3),
                .fetched = fetched,
                .tasks = tasks_,
                .whole_tasks = whole_tasks_,
                .rereads_windows = rereads_windows(machine.l1),
                .depth = depth(),
                .pieces_into_l1 = has_far_rows() ? pieces_into_l1(machine.l1) : 0,
                .pieces_into_l2 = has_far_rows() ? pieces_into_l2(machine.l2) : 0};
    }

private:
    // A level, from the outside in.
    struct NestLevel {
        int loop;
        double trips;
    };

    void add(const Level& level) {
        const std::size_t depth = loops_.size();
        const int loop = contraction_.loop_of(level.letter);
        const auto outer = sizes_.begin() + static_cast<std::ptrdiff_t>(depth * count_);
        std::copy_n(outer, count_, outer + static_cast<std::ptrdiff_t>(count_));
        double& size = sizes_[(depth + 1) * count_ + static_cast<std::size_t>(loop)];
        const double step = std::min(static_cast<double>(level.step), size);
        const double trips = std::ceil(size / step);
        loops_.push_back({loop, trips});
        calls_ *= trips;
        if (level.parallel) {
            tasks_ *= trips;
            whole_tasks_ *= size / step;
        }
        if (contraction_.loop_at(loop).sum) sum_trips_ *= trips;
        const bool is_same = size == step;
        size = step;
        footprints_.push_back(is_same ? footprints_.back() : footprint_below(depth + 1));
    }

    double size(std::size_t depth, std::size_t loop) const { return sizes_[depth * count_ + loop]; }

    // Bytes that everything below `depth` outer levels touches.
    Bytes footprint_below(std::size_t depth) const {
        Bytes bytes{contraction_.bytes_a, contraction_.bytes_b, contraction_.bytes_c};
        for (std::size_t loop = 0; loop < count_; ++loop) {
            const double whole = size(0, loop), part = size(depth, loop);
            if (part == whole) continue;
            for (std::size_t operand = 0; operand < kOperands; ++operand) {
                if (moves(contraction_, operand, static_cast<int>(loop))) {
                    bytes[operand] *= part / whole;
                }
            }
        }
        return bytes;
    }
    const Bytes& footprint(std::size_t depth) const { return footprints_[depth]; }

    // Bytes that a cache brings in when it holds what is below `depth`.
    MovedBytes traffic_below(std::size_t depth) const {
        const Bytes& bytes = footprint(depth);
        return {bytes[0] * times(0, depth) + bytes[1] * times(1, depth),
                bytes[2] * times(2, depth)};
    }

    // How often that is another part of an operand.
    double times(std::size_t operand, std::size_t depth) const {
        double times = 1;
        bool replaced = false;
        for (std::size_t level = depth; level-- > 0;) {
            const auto [loop, trips] = loops_[level];
            if (trips == 1) continue;
            replaced = replaced || moves(contraction_, operand, loop);
            if (replaced) times *= trips;
        }
        return times;
    }

    // Whether the tiles of a block that is a few windows tall read rows of A and B from beyond
    // `cache` again and again: so few multiplications for each read do not hide it.
    bool rereads_windows(double cache) const {
        const bool windows = contraction_.entry_loop >= 0 && contraction_.rows.loop < 0;
        const bool one_tile = rows() <= kTileRows && columns() <= kTileColumns;
        return windows && !one_tile && total(footprint(loops_.size())) > cache;
    }

    // Products that one kernel call sums up in an element of C.
    double depth() const {
        double products =
            contraction_.bytes_c == 0
                ? 0
                : contraction_.flops / 2 /
                      (contraction_.bytes_c / static_cast<double>(size_of(contraction_.c_type)));
        for (std::size_t loop = 0; loop < count_; ++loop) {
            if (contraction_.loops[loop].sum) products *= size(loops_.size(), loop) / size(0, loop);
        }
        return products;
    }

    // Outer levels below which all fits into a cache, or all there are.
    std::size_t depth_in(double cache) const {
        std::size_t depth = 0;
        while (depth < loops_.size() && total(footprint(depth)) > usable(cache)) ++depth;
        return depth;
    }

    // Bytes that a cache brings in.
    MovedBytes traffic_into(double cache) const {
        const std::size_t depth = depth_in(cache);
        if (total(footprint(depth)) <= usable(cache)) return traffic_below(depth);
        const MovedBytes moved = kernel_traffic();
        return {calls_ * moved.operands, calls_ * moved.result};
    }

    bool has_far_rows() const {
        return contraction_.trans_a && contraction_.rows.loop >= 0 &&
               contraction_.classes.front().front().lda * size_of(contraction_.dtype) > kFarRow;
    }

    // Whenever a loop moves A, or for every tile of a call whose rows of A are too many to stay.
    double pieces_into_l1(double cache) const {
        const std::size_t depth = loops_.size();
        const double bytes = footprint(depth)[0];
        if (bytes <= usable(cache)) return pieces(bytes * times(0, depth), rows());
        return pieces(bytes * calls_ * std::ceil(columns() / kTileColumns),
                      std::min(rows(), kTileRows));
    }

    double pieces_into_l2(double cache) const {
        const std::size_t depth = depth_in(cache);
        return pieces(footprint(depth)[0] * times(0, depth), rows(depth));
    }

    double pieces(double bytes, double rows) const {
        return bytes / (rows * static_cast<double>(size_of(contraction_.dtype)));
    }

    static double total(const Bytes& bytes) { return bytes[0] + bytes[1] + bytes[2]; }

    // Bytes of one kernel call whose operands do not stay: every tile of columns reads A, every
    // tile of rows B.
    MovedBytes kernel_traffic() const {
        const Bytes& bytes = footprint(loops_.size());
        return {bytes[0] * std::ceil(columns() / kTileColumns) +
                    bytes[1] * std::ceil(rows() / kTileRows),
                bytes[2]};
    }

    double columns() const {
        const Dimension& columns = contraction_.columns;
        return static_cast<double>(std::min(columns.unit, columns.total));
    }

    double rows() const { return rows(loops_.size()); }
    double rows(std::size_t depth) const {
        const Dimension& rows = contraction_.rows;
        if (rows.loop < 0) return static_cast<double>(contraction_.block_rows);
        const double last = size(depth, static_cast<std::size_t>(rows.loop));
        return std::min(last * static_cast<double>(rows.unit), static_cast<double>(rows.total));
    }

    const Contraction& contraction_;
    std::size_t count_;          // of loops
    std::vector<double> sizes_;  // [depth][loop]
    std::vector<NestLevel> loops_;
    std::vector<Bytes> footprints_;  // [depth]
    double calls_ = 1;
    double tasks_ = 1;        // that threads can share
    double whole_tasks_ = 1;  // the same work in tasks of full size
    double sum_trips_ = 1;
};

}  // namespace

ScheduleTraffic schedule_traffic(const Contraction& contraction, const Schedule& schedule,
                                 const Machine& machine) {
    return Nest(contraction, schedule).traffic(machine);
}

namespace {

// How much longer multiplications take that wait for lines the L1 cache has lost.
double lost_rows(const Contraction& contraction, double depth, const Machine& machine) {
    if (!contraction.trans_a || contraction.dtype != DType::f32 || !machine.few_registers()) {
        return 1;
    }
    const double kept = machine.rows_kept(contraction.ldb * size_of(contraction.dtype));
    return 1 + kLostRows * std::max(0.0, std::log2(depth / kept));
}

// What calls spend on their parts of C beside the multiplications.
double taking_up(const Contraction& contraction, const ScheduleTraffic& traffic,
                 const Machine& machine) {
    const bool apart =
        contraction.ldc > std::min(contraction.columns.unit, contraction.columns.total);
    if (!apart || !machine.few_registers() || traffic.depth == 0) return 0;
    const double elements = traffic.flops / 2 / traffic.depth;
    return elements * static_cast<double>(size_of(contraction.c_type)) * kTakenUp;
}

double doublings_of_waiting(const ScheduleTraffic& traffic) {
    double doublings = 0;
    for (const double threads : kThreads) {
        const double rounds = std::ceil(traffic.tasks / threads);
        doublings += std::log2(rounds * threads / traffic.whole_tasks);
    }
    return doublings;
}

}  // namespace

double schedule_cost(const Contraction& contraction, const Schedule& schedule,
                     const Machine& machine) {
    const ScheduleTraffic traffic = schedule_traffic(contraction, schedule, machine);
    const double rate = flops_per_cycle(contraction.dtype, machine);
    const double compute = traffic.flops / rate * lost_rows(contraction, traffic.depth, machine);
    const double from_l2 = traffic.into_l1.total() * kFromL2;
    const double waits = traffic.rereads_windows ? from_l2 : 0;
    const double beyond =
        cycles_beyond_l2(traffic.into_l2.total() + kResultSurcharge * traffic.into_l2.result,
                         traffic.into_l3.total() + kResultSurcharge * traffic.into_l3.result);
    const double pieces =
        traffic.pieces_into_l1 * kPieceFromL2 + traffic.pieces_into_l2 * kPieceFromFar;
    return (std::max(compute, from_l2) + waits + beyond * (traffic.fetched ? 1 : kNotFetched) +
            pieces + traffic.calls * kCyclesPerBodyCall +
            taking_up(contraction, traffic, machine)) *
           (1 + kLostToWaiting * doublings_of_waiting(traffic));
}

}  // namespace dlprim
