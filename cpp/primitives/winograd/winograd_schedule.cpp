#include "primitives/winograd/winograd_schedule.h"

#include <algorithm>
#include <cmath>

#include "primitives/winograd/winograd_pass.h"
#include "primitives/winograd/winograd_weights_pass.h"

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

double vectors(std::int64_t channels) { return std::ceil(static_cast<double>(channels) / kVector); }

class Model {
public:
    Model(const WinogradProblem& problem, const Machine& machine)
        : problem_(problem),
          machine_(machine),
          in_(problem.in.blocks),
          out_(problem.out.blocks),
          grid_(problem.grid()),
          slots_(grid_.slots()) {}

    double cycles(const Steps& steps) const {
        const double nest = problem_.pass == PassKind::backward_weights ? weights_nest_cycles(steps)
                                                                        : nest_cycles(steps);
        return multiply_cycles() + transform_cycles(problem_.in) + transform_cycles(problem_.out) +
               nest;
    }

    double block_count(const Steps& steps) const {
        return static_cast<double>(Blocks{grid_.images, steps.images}.count() *
                                   Blocks{grid_.rows.count(), steps.rows}.count() *
                                   Blocks{grid_.columns.count(), steps.columns}.count());
    }

    // Bytes of the transformed inputs of all images.
    double bytes_of_inputs() const {
        return slots_of_all() * static_cast<double>(in_.total()) * kBytes;
    }

private:
    // Cycles for a byte of a working set of so many bytes.
    double from(double bytes) const {
        if (bytes > kUsable * machine_.l3) return kFromMemory;
        if (bytes > kUsableL3 * machine_.l3) return kFromL3 * kCrowdedL3;
        const double beyond = bytes / (kUsable * machine_.l2) - 1;
        return kFromL2 + std::clamp(beyond, 0.0, 1.0) * (kFromL3 - kFromL2);
    }

    // Slots of all tiles of the minibatch.
    double slots_of_all() const {
        const auto along = [](const AxisTiles& axis) {
            return static_cast<double>(axis.larges * (axis.large + 2) + axis.threes * 5);
        };
        return static_cast<double>(grid_.images) * along(grid_.rows) * along(grid_.columns);
    }

    // Of all tiles. A tile's pixels are fetched while its neighbour is transformed; with few
    // channels in a group that is soon done, and each tile waits for the rest of the way. Of
    // smaller tiles the transforms cost less.
    double transform_cycles(const WinogradTensor& side) const {
        const auto elements =
            static_cast<double>(problem_.images * side.height * side.width * side.blocks.total());
        const double bytes = 2 * elements * kBytes;  // of both tensors
        const double fetch = bytes > kUsableL3 * machine_.l3 ? kCyclesFromMemory
                             : bytes > kUsable * machine_.l2 ? kCyclesFromL3
                                                             : 0;
        const double vector = side.kind == TileKind::result ? kCyclesToReduce : kCyclesToExpand;
        return static_cast<double>(grid_.count() * side.blocks.groups) * (slots_ / 36.0) *
               std::max(vector * vectors(side.blocks.channels), fetch);
    }

    double multiply_cycles() const {
        const double columns = kVector * vectors(out_.channels);
        return static_cast<double>(in_.groups) * 2 * slots_of_all() *
               static_cast<double>(in_.channels) * columns /
               (machine_.flops_per_cycle() * kProductsReach);
    }

    // What the blocks of tiles move, forward and in backward-data.
    double nest_cycles(const Steps& steps) const {
        const auto in = static_cast<double>(in_.channels);
        const auto out_blocks = static_cast<double>(out_.per_group());
        const double width = kVector * vectors(out_.block);
        const double filter = slots_ * in * width * out_blocks * kBytes;
        const double inputs = slots_ * steps.tiles() * (in + kVector) * kBytes;
        const double sums = slots_ * steps.tiles() * width * kBytes;
        const double filter_cost = filter * from(filter + inputs + sums);
        // Inputs are written once and read for each block of results, which are written and read.
        const double slot_cost =
            ((1 + out_blocks) * inputs + 2 * out_blocks * sums) * from(inputs + sums);
        return static_cast<double>(in_.groups) * block_count(steps) *
               (filter_cost + slot_cost + kCyclesPerBlock);
    }

    double weights_nest_cycles(const Steps& steps) const {
        const auto out_blocks = static_cast<double>(out_.per_group());
        const double inputs = slots_ * steps.tiles() * static_cast<double>(in_.total()) * kBytes;
        const double gradients =
            slots_ * steps.tiles() * static_cast<double>(out_.total()) * kBytes;
        const double pair = slots_ * static_cast<double>(in_.block * out_.block) * kBytes;
        const auto pairs = static_cast<double>(in_.count() * out_.per_group());
        const double blocks = block_count(steps);
        const bool keeps = pairs <= 4;
        const double all = inputs + gradients + pair * (keeps ? pairs : 1);
        // Neighbouring products read the same gradients, which stay near.
        const double operands = (inputs * out_blocks + gradients) * from(all);
        // Written once and read once by the transforms, read and written by each product.
        const double written = 2 * (inputs + gradients) * from(all);
        // Sums that are not kept are written and read once, in L2.
        const double sums = pair * pairs * (keeps ? kCallsOfSums * from(all) : 2 * from(pair));
        const double reduce = pairs * static_cast<double>(in_.block) * vectors(out_.block) *
                              kCyclesToReduceFilter * (keeps ? 1 : blocks);
        return reduce + blocks * (operands + written + sums + kCyclesPerBlock);
    }

    const WinogradProblem& problem_;
    const Machine& machine_;
    ChannelBlocks in_;
    ChannelBlocks out_;
    TileGrid grid_;
    double slots_;
};

// How much longer than all at work: threads wait where tasks are few or do not come out even.
double idle_factor(double tasks) {
    double factor = 1;
    for (const auto& [threads, weight] : kTeams) {
        const double rounds = std::ceil(tasks / threads);
        factor += weight * (rounds * threads / std::max(tasks, 1.0) - 1);
    }
    return factor;
}

// Both ways in which threads share the blocks of tiles of one size: each thread has its own, or all
// work on one, whose inputs they exchange, and each has some of the result channels.
void add_plans(const WinogradProblem& problem, const Model& model, const Steps& steps,
               std::vector<WinogradPlan>& plans) {
    const double cycles = model.cycles(steps);
    for (const bool blocks : {true, false}) {
        const Schedule schedule{{{'g', 1, blocks},
                                 {'n', steps.images, blocks},
                                 {'h', steps.rows, blocks},
                                 {'w', steps.columns, blocks},
                                 {'k', 1, !blocks}}};
        const ChannelBlocks& out = problem.out.blocks;
        const double tasks = blocks ? model.block_count(steps) * static_cast<double>(out.groups)
                                    : static_cast<double>(out.per_group());
        const double exchange = blocks ? 0 : kExchanged * model.bytes_of_inputs();
        plans.push_back({schedule, cycles, (cycles + exchange) * idle_factor(tasks)});
    }
}

}  // namespace

std::vector<WinogradPlan> winograd_plans(const WinogradProblem& problem, const Machine& machine,
                                         int count) {
    const Model model(problem, machine);
    const bool weights = problem.pass == PassKind::backward_weights;
    const std::int64_t parts = weights ? WinogradWeightsPass::parts_of(problem) : 1;
    std::vector<WinogradPlan> plans;
    for (const Steps& steps : possible_steps(problem.grid())) {
        if (!weights) {
            add_plans(problem, model, steps, plans);
            continue;
        }
        if (parts > 1 && steps.images > std::max<std::int64_t>(problem.images / parts, 1)) continue;
        const Schedule schedule =
            with_parts({{{'n', steps.images}, {'h', steps.rows}, {'w', steps.columns}}},
                       {'n', problem.images}, parts);
        const double cycles = model.cycles(steps);
        plans.push_back({schedule, cycles, cycles});
    }
    std::stable_sort(plans.begin(), plans.end(), [](const WinogradPlan& a, const WinogradPlan& b) {
        return a.shared_cycles < b.shared_cycles;
    });
    plans.resize(std::min(plans.size(), static_cast<std::size_t>(std::max(count, 1))));
    return plans;
}

double direct_cycles(const ConvProblem& problem, const Machine& machine) {
    const double columns = kVector * vectors(problem.shape.group_K());
    const double padded = columns / static_cast<double>(problem.shape.group_K());
    const double rate = problem.dtype == DType::bf16 ? machine.halves_rate : 1;
    return problem.shape.flops() * padded / (machine.flops_per_cycle() * kDirectReaches * rate);
}

}  // namespace dlprim
