#include "primitives/winograd/winograd_schedule.h"

#include <algorithm>
#include <cmath>

namespace dlprim {
namespace {

// What of the machine's arithmetic the products and the direct algorithm reach.
constexpr double kProductsReach = 0.93;
constexpr double kDirectReaches = 0.95;
// Cycles for a tile and a vector of channels, data from the caches (measured on Zen 5: 125 and 105
// in L1, half as much again from L3).
constexpr double kCyclesToExpand = 190;
constexpr double kCyclesToReduce = 160;
// From the fetch of the pixels of a neighbouring tile of 4 until they have come.
constexpr double kCyclesFromL3 = 250;
constexpr double kCyclesFromMemory = 500;
// For a gradient of the filter and a vector of channels.
constexpr double kCyclesToReduceFilter = 110;
// Cycles per byte that a product adds to what it computes meanwhile.
constexpr double kFromL2 = 0.25 / 64;
constexpr double kFromL3 = 0.7 / 24;
constexpr double kFromMemory = 0.5 / 10;
// The part of a cache that may be counted on; of L3, which others use too, more costs more.
constexpr double kUsable = 1.15;
constexpr double kUsableL3 = 0.25;
constexpr double kCrowdedL3 = 1.2;
constexpr double kBytes = 4;
constexpr double kVector = kBlockLanes;
// Of a byte of inputs that one thread transforms and others read; between the 0.05 of cores whose
// caches are near each other and the 0.4 of a virtual machine on a busy day.
constexpr double kExchanged = 0.1;
// Schedules do not depend on the number of threads: these are weighed, by what one thread counts.
struct Team {
    double threads;
    double weight;
};
constexpr Team kTeams[] = {{2, 0.1}, {4, 0.1}, {8, 0.06}};
// Cycles until a block of tiles has begun.
constexpr double kCyclesPerBlock = 1500;
// More tiles than these in a block are never faster.
constexpr std::int64_t kMostTiles = 512;
// How often a block of tiles moves the sums of a gradient, which its products read and write while
// little is computed with them.
constexpr double kCallsOfSums = 6;

struct Steps {
    std::int64_t images;
    std::int64_t rows;
    std::int64_t columns;

    double tiles() const { return static_cast<double>(images * rows * columns); }
};

// Whole images, or whole rows of one, or parts of a row.
std::vector<Steps> possible_steps(const TileGrid& grid) {
    std::vector<Steps> steps;
    const std::int64_t rows = std::max<std::int64_t>(grid.rows.count(), 1);
    const std::int64_t columns = std::max<std::int64_t>(grid.columns.count(), 1);
    const auto add = [&](std::int64_t images, std::int64_t high, std::int64_t wide) {
        const bool small = images * high * wide <= kMostTiles;
        if (small || (images == 1 && high == 1)) steps.push_back({images, high, wide});
    };
    for (std::int64_t images = 2; images < 2 * grid.images; images *= 2) {
        add(std::min(images, grid.images), rows, columns);
    }
    for (std::int64_t parts = 1; parts <= rows; ++parts) {
        const std::int64_t high = (rows + parts - 1) / parts;
        if (steps.empty() || steps.back().rows != high || steps.back().images > 1) {
            add(1, high, columns);
        }
    }
    for (std::int64_t wide = columns; wide > 8; wide = (wide + 1) / 2) add(1, 1, wide);
    return steps;
}

double from(double bytes, const Machine& machine) {
    if (bytes > kUsable * machine.l3) return kFromMemory;
    if (bytes > kUsableL3 * machine.l3) return kFromL3 * kCrowdedL3;
    const double beyond = bytes / (kUsable * machine.l2) - 1;
    return kFromL2 + std::clamp(beyond, 0.0, 1.0) * (kFromL3 - kFromL2);
}

double vectors(std::int64_t channels) { return std::ceil(static_cast<double>(channels) / kVector); }

// Slots of all tiles of the minibatch.
double slots_of_all(const TileGrid& grid) {
    const auto along = [](const AxisTiles& axis) {
        return static_cast<double>(axis.larges * (axis.large + 2) + axis.threes * 5);
    };
    return static_cast<double>(grid.images) * along(grid.rows) * along(grid.columns);
}

double tiles_of_all(const TileGrid& grid) {
    return static_cast<double>(grid.images * grid.rows.count() * grid.columns.count());
}

double block_count(const TileGrid& grid, const Steps& steps) {
    const auto blocks = [](std::int64_t extent, std::int64_t step) {
        return static_cast<double>((extent + step - 1) / step);
    };
    return blocks(grid.images, steps.images) * blocks(grid.rows.count(), steps.rows) *
           blocks(grid.columns.count(), steps.columns);
}

// Of smaller tiles the transforms cost less.
double share_of_transform(const TileGrid& grid) { return grid.slots() / 36.0; }

// A side of the problem in memory and what transforms it.
struct Transform {
    ChannelBlocks channels;
    double pixels;  // of all images
    double cycles;  // for a tile of 4 and a vector of channels
};

// Of all tiles. A tile's pixels are fetched while its neighbour is transformed; with few channels
// in a group that is soon done, and each tile waits for the rest of the way.
double transform_cycles(const Transform& side, const TileGrid& grid, const Machine& machine) {
    // Both tensors.
    const double bytes = 2 * side.pixels * static_cast<double>(side.channels.total()) * kBytes;
    const double fetch = bytes > kUsableL3 * machine.l3 ? kCyclesFromMemory
                         : bytes > kUsable * machine.l2 ? kCyclesFromL3
                                                        : 0;
    return tiles_of_all(grid) * static_cast<double>(side.channels.groups) *
           share_of_transform(grid) *
           std::max(side.cycles * vectors(side.channels.channels), fetch);
}

double multiply_cycles(const TileGrid& grid, const ChannelBlocks& in, const ChannelBlocks& out,
                       const Machine& machine) {
    const double columns = kVector * vectors(out.channels);
    return static_cast<double>(in.groups) * 2 * slots_of_all(grid) *
           static_cast<double>(in.channels) * columns /
           (machine.flops_per_cycle() * kProductsReach);
}

double pass_cycles(const WinogradProblem& problem, const TileGrid& grid, const Steps& steps,
                   const Machine& machine) {
    const double slots = grid.slots();
    const auto groups = static_cast<double>(problem.in.groups);
    const auto in = static_cast<double>(problem.in.channels);
    const auto out_blocks = static_cast<double>(problem.out.per_group());
    const double width = kVector * vectors(problem.out.block);
    const double filter = slots * in * width * out_blocks * kBytes;
    const double inputs = slots * steps.tiles() * (in + kVector) * kBytes;
    const double sums = slots * steps.tiles() * width * kBytes;
    const double blocks = groups * block_count(grid, steps);
    const double filter_cost = filter * from(filter + inputs + sums, machine);
    // Inputs are written once and read for each block of results, which are written and read.
    const double slot_cost =
        ((1 + out_blocks) * inputs + 2 * out_blocks * sums) * from(inputs + sums, machine);
    const auto pixels = [&](std::int64_t high, std::int64_t wide) {
        return static_cast<double>(problem.images * high * wide);
    };
    const Transform expand{problem.in, pixels(problem.in_height, problem.in_width),
                           kCyclesToExpand};
    const Transform reduce{problem.out, pixels(problem.out_height, problem.out_width),
                           kCyclesToReduce};
    const double transforms =
        transform_cycles(expand, grid, machine) + transform_cycles(reduce, grid, machine);
    return multiply_cycles(grid, problem.in, problem.out, machine) + transforms +
           blocks * (filter_cost + slot_cost + kCyclesPerBlock);
}

double weights_cycles(const ConvProblem& problem, const TileGrid& grid, const Steps& steps,
                      const Machine& machine) {
    const ChannelBlocks in = src_blocks(problem.shape);
    const ChannelBlocks out = dst_blocks(problem.shape);
    const double slots = grid.slots();
    const auto groups = static_cast<double>(in.groups);
    const auto in_blocks = static_cast<double>(in.per_group());
    const auto out_blocks = static_cast<double>(out.per_group());
    const double inputs = slots * steps.tiles() * static_cast<double>(in.total()) * kBytes;
    const double gradients = slots * steps.tiles() * static_cast<double>(out.total()) * kBytes;
    const double pair = slots * static_cast<double>(in.block * out.block) * kBytes;
    const double pairs = groups * in_blocks * out_blocks;
    const double blocks = block_count(grid, steps);
    const bool keeps = pairs <= 4;
    const double all = inputs + gradients + pair * (keeps ? pairs : 1);
    // Neighbouring products read the same gradients, which stay near.
    const double operands = (inputs * out_blocks + gradients) * from(all, machine);
    // Written once and read once by the transforms, read and written by each product.
    const double written = 2 * (inputs + gradients) * from(all, machine);
    // Sums that are not kept are written and read once, in L2.
    const double sums =
        pair * pairs * (keeps ? kCallsOfSums * from(all, machine) : 2 * from(pair, machine));
    const double reduce = pairs * static_cast<double>(in.block) * vectors(out.block) *
                          kCyclesToReduceFilter * (keeps ? 1 : blocks);
    const ConvShape& shape = problem.shape;
    const Transform src{in, static_cast<double>(shape.N * shape.H * shape.W), kCyclesToExpand};
    const Transform dst{out, static_cast<double>(shape.N * shape.P() * shape.Q()), kCyclesToExpand};
    const double transforms =
        transform_cycles(src, grid, machine) + transform_cycles(dst, grid, machine);
    return multiply_cycles(grid, in, out, machine) + transforms + reduce +
           blocks * (operands + written + sums + kCyclesPerBlock);
}

// How much longer than all at work: threads wait where tasks are few or do not come out even.
double idle_factor(double tasks) {
    double factor = 1;
    for (const auto& [threads, weight] : kTeams) {
        const double rounds = std::ceil(tasks / threads);
        factor += weight * (rounds * threads / std::max(tasks, 1.0) - 1);
    }
    return factor;
}

// Bytes of the transformed inputs of all images.
double bytes_of_inputs(const TileGrid& grid, const ChannelBlocks& in) {
    return slots_of_all(grid) * static_cast<double>(in.total()) * kBytes;
}

// Both ways in which threads share the blocks of tiles of one size: each thread has its own, or all
// work on one, whose inputs they exchange, and each has some of the result channels.
void add_plans(const WinogradProblem& problem, const Steps& steps, const Machine& machine,
               std::vector<WinogradPlan>& plans) {
    const TileGrid grid = tile_grid(problem);
    const double cycles = pass_cycles(problem, grid, steps, machine);
    const double exchange = kExchanged * bytes_of_inputs(grid, problem.in);
    for (const bool blocks : {true, false}) {
        const Schedule schedule{{{'g', 1, blocks},
                                 {'n', steps.images, blocks},
                                 {'h', steps.rows, blocks},
                                 {'w', steps.columns, blocks},
                                 {'k', 1, !blocks}}};
        const double tasks = blocks
                                 ? block_count(grid, steps) * static_cast<double>(problem.in.groups)
                                 : static_cast<double>(problem.out.per_group());
        const double shared = (cycles + (blocks ? 0 : exchange)) * idle_factor(tasks);
        plans.push_back({schedule, cycles, shared});
    }
}

std::vector<WinogradPlan> best_of(std::vector<WinogradPlan> plans, int count) {
    std::stable_sort(plans.begin(), plans.end(), [](const WinogradPlan& a, const WinogradPlan& b) {
        return a.shared_cycles < b.shared_cycles;
    });
    plans.resize(std::min(plans.size(), static_cast<std::size_t>(std::max(count, 1))));
    return plans;
}

}  // namespace

std::vector<WinogradPlan> winograd_plans(const WinogradProblem& problem, const Machine& machine,
                                         int count) {
    std::vector<WinogradPlan> plans;
    for (const Steps& steps : possible_steps(tile_grid(problem))) {
        add_plans(problem, steps, machine, plans);
    }
    return best_of(std::move(plans), count);
}

std::vector<WinogradPlan> winograd_weights_plans(const ConvProblem& problem, int tile,
                                                 const Machine& machine, int count) {
    const ConvShape& shape = problem.shape;
    const TileGrid grid{shape.N, axis_tiles(shape.P(), tile), axis_tiles(shape.Q(), tile)};
    const std::int64_t parts = WinogradWeightsPass::parts_of(problem, tile);
    std::vector<WinogradPlan> plans;
    for (const Steps& steps : possible_steps(grid)) {
        if (parts > 1 && steps.images > std::max<std::int64_t>(shape.N / parts, 1)) continue;
        const Schedule schedule =
            with_parts({{{'n', steps.images}, {'h', steps.rows}, {'w', steps.columns}}},
                       {'n', shape.N}, parts);
        const double cycles = weights_cycles(problem, grid, steps, machine);
        plans.push_back({schedule, cycles, cycles});
    }
    return best_of(std::move(plans), count);
}

double direct_cycles(const ConvProblem& problem, const Machine& machine) {
    const double columns = kVector * vectors(problem.shape.group_K());
    const double padded = columns / static_cast<double>(problem.shape.group_K());
    const double rate = problem.dtype == DType::bf16 && machine.multiplies_halves ? 2 : 1;
    return problem.shape.flops() * padded / (machine.flops_per_cycle() * kDirectReaches * rate);
}

}  // namespace dlprim
