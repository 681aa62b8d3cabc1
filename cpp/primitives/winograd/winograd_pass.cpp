#include "primitives/winograd/winograd_pass.h"

#include <algorithm>
#include <map>
#include <stdexcept>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kWeight = 4;  // of a float32, or of a pair of bfloat16

std::vector<Loop> block_loops(const WinogradProblem& problem) {
    std::vector<Loop> loops = WinogradPass::loops(problem);
    loops.pop_back();
    return loops;
}

bool is_shared(const Schedule& schedule) {
    return std::any_of(schedule.levels.begin(), schedule.levels.end(),
                       [](const Level& level) { return level.parallel; });
}

bool shares_channels(const Schedule& schedule) {
    return std::any_of(schedule.levels.begin(), schedule.levels.end(),
                       [](const Level& level) { return level.letter == 'k' && level.parallel; });
}

// The levels of `schedule` that are blocks of channels, which threads may share whatever else they
// share, or the others.
Schedule levels_of(const Schedule& schedule, bool channels) {
    Schedule part;
    for (const Level& level : schedule.levels) {
        if ((level.letter == 'k') != channels) continue;
        part.levels.push_back(
            {level.letter, level.step, level.parallel || (channels && is_shared(schedule))});
    }
    return part;
}

// Levels of a single iteration may stand anywhere.
void require_order(const Schedule& schedule, const std::vector<Loop>& loops) {
    std::map<char, std::int64_t> sizes;
    for (const Loop& loop : loops) sizes[loop.letter] = loop.extent;
    bool channels = false;
    for (const Level& level : schedule.levels) {
        std::int64_t& size = sizes[level.letter];
        const bool repeats = level.step < size;
        size = std::min(size, level.step);
        if (level.letter == 'k') {
            channels = true;
        } else if (channels && repeats) {
            throw std::invalid_argument("schedule '" + to_string(schedule) +
                                        "' has blocks of tiles inside k, expected the levels of k "
                                        "behind those of g, n, h and w");
        }
    }
}

}  // namespace

std::vector<Loop> WinogradPass::loops(const WinogradProblem& problem) {
    const TileGrid grid = problem.grid();
    return {{'g', problem.out.blocks.groups},
            {'n', grid.images},
            {'h', grid.rows.count()},
            {'w', grid.columns.count()},
            {'k', problem.out.blocks.per_group()}};
}

WinogradPass::WinogradPass(const WinogradProblem& problem, const Schedule& schedule)
    : problem_(problem),
      schedule_(schedule),
      grid_(problem.grid()),
      blocks_(block_loops(problem), levels_of(schedule, false)),
      channels_({loops(problem).back()}, levels_of(schedule, true)) {
    require_order(schedule, loops(problem));
    shares_blocks_ = !shares_channels(schedule);
    if (!shares_blocks_ && is_shared(blocks_.schedule())) {
        throw std::invalid_argument("schedule '" + to_string(schedule) +
                                    "' shares both blocks of tiles and channels, expected capital "
                                    "letters among g, n, h and w or k alone");
    }
    find_blocks();
    in_.emplace(problem, problem.in, slots_.stride);
    out_.emplace(problem, problem.out, sums_.stride);
    filters_ = filters_to(filter_);
    if (on_the_fly()) panel_filters_ = filters_to(panel_);
}

WinogradPass::Task WinogradPass::task_at(const LoopNest::Ranges& ranges,
                                         const ConvTensors& tensors) const {
    return {tensors, ranges[0].begin, TileBlock(grid_, ranges[1], ranges[2], ranges[3])};
}

// Which blocks of tiles the nest makes, and the kernels for them.
void WinogradPass::find_blocks() {
    TileBlockKinds found;
    blocks_.run([&](const LoopNest::Ranges& ranges) {
        if (ranges[0].size() > 1) {
            throw std::invalid_argument("schedule '" + to_string(schedule_) +
                                        "' takes several groups at once, expected step 1 for g");
        }
        found.add(TileBlock(grid_, ranges[1], ranges[2], ranges[3]));
    });
    boxes_ = found.blocks;
    slots_ = slot_panels(room_for_tiles(found.most_tiles), in().channels, false);
    filter_ = slot_panels(in().channels, out().block, true);
    panel_ = slot_panels(in().block, out().block, true);
    sums_ = slot_panels(room_for_tiles(found.most_tiles), out().block, true);
    may_overlay_ = shares_blocks_ && out().per_group() == 1;
    if (may_overlay_) slots_.stride = sums_.stride = std::max(slots_.stride, sums_.stride);
    for (const TileBlock::Counts& counts : found.kinds) prepare(counts);
}

void WinogradPass::prepare(const TileBlock::Counts& counts) {
    for (const std::int64_t width : {out().block, out().last()}) {
        WinogradProducts::Kind kind{counts, whole_vectors(width), in().channels};
        products_.prepare(grid_, {slots_, filter_, sums_}, kind);
        if (!on_the_fly()) continue;
        kind.accumulates = true;
        for (const std::int64_t channels : {in().block, in().last()}) {
            kind.channels = channels;
            products_.prepare(grid_, {slots_, panel_, sums_}, kind);
        }
    }
}

WinogradPass::Sharing WinogradPass::sharing(int threads) const {
    const auto blocks = static_cast<int>(
        shares_blocks_ ? std::clamp<std::int64_t>(blocks_.tasks(), 1, threads) : 1);
    return {blocks, (threads + blocks - 1) / blocks};
}

std::int64_t WinogradPass::seat_floats() const {
    return floats(sums_) + (on_the_fly() ? floats(panel_) : 0);
}

std::int64_t WinogradPass::place_floats(int threads) const {
    return floats(slots_) + (overlays(threads) ? slots_.stride : threads * seat_floats());
}

std::int64_t WinogradPass::scratch_bytes(bool transforms, int threads) const {
    const Sharing shared = sharing(threads);
    const std::int64_t transformed = transforms && !on_the_fly() ? transformed_floats() : 0;
    return (transformed + shared.blocks * place_floats(shared.of_block)) * size_of(DType::f32);
}

void WinogradPass::run(const ConvTensors& tensors, char* scratch, int threads) const {
    if (boxes_ == 0) return;
    auto* room = reinterpret_cast<float*>(scratch);
    ConvTensors ready = tensors;
    if (problem_.pass == PassKind::backward_data) ready.src = tensors.diff_dst;
    if (tensors.transformed == nullptr && !on_the_fly()) {
        transform_weights(tensors.weights, room);
        ready.transformed = room;
        room += transformed_floats();
    }
    run_blocks(ready, room, threads);
}

// Threads that there are no blocks of tiles for share one, first its inputs and then its result
// channels.
void WinogradPass::run_blocks(const ConvTensors& tensors, float* scratch, int threads) const {
    const Sharing shared = sharing(threads);
    parallel_ranges(blocks_.tasks(), threads, [&](Range tasks, int seat) {
        const std::int64_t place = blocks_.tasks() <= threads ? tasks.begin : seat;
        float* const mine = scratch + place * place_floats(shared.of_block);
        blocks_.run(tasks, [&](const LoopNest::Ranges& ranges) {
            Task task = task_at(ranges, tensors);
            task.threads = shared.of_block;
            task.slots = mine + (overlays(task.threads) ? slots_.stride : 0);
            run_block(task, mine + (overlays(task.threads) ? 0 : floats(slots_)));
        });
    });
}

// `scratch` is for sums and filters.
void WinogradPass::run_block(const Task& whole, float* scratch) const {
    const int threads = std::min(whole.threads, num_threads());
    const Blocks pieces = whole.tiles.pieces(in().per_group(), threads);
    parallel_for(in().per_group() * pieces.count(), [&](std::int64_t piece) {
        expand(whole, pieces.at(piece % pieces.count()), piece / pieces.count());
    });
    parallel_ranges(channels_.tasks(), threads, [&](Range tasks, int seat) {
        Task mine = whole;
        mine.sums = scratch + seat * seat_floats();
        mine.filter = mine.sums + floats(sums_);
        compute(mine, tasks);
    });
}

// ---------------------------------------------------------------- one block of tiles

// From the last tap to the first in backward-data.
WinogradPass::Filters WinogradPass::filters_to(const SlotPanels& panels) const {
    const bool pairs = problem_.dtype == DType::bf16;
    const bool turned = problem_.pass == PassKind::backward_data;
    const std::int64_t pixel = (turned ? -1 : 1) * tap_elements();
    TileTransform it{.tile_h = problem_.tile,
                     .tile_w = problem_.tile,
                     .row = kWinogradTaps * pixel,
                     .pixel = pixel,
                     .slot_stride = panels.stride};
    Filters filters;
    for (const TileKind kind :
         {TileKind::filter, TileKind::even_pair_filter, TileKind::odd_pair_filter}) {
        it.kind = kind;
        if (pairs == (kind != TileKind::filter)) filters.push_back(tile_kernel(it));
    }
    return filters;
}

// A block of weights to rows of U, one for each channel of the sum.
void WinogradPass::transform_block(const void* weights, std::int64_t block, const Filters& filters,
                                   float* transformed) const {
    const std::int64_t first_tap =
        problem_.pass == PassKind::backward_data ? kWinogradTaps * kWinogradTaps - 1 : 0;
    const std::int64_t place =
        (block * kWinogradTaps * kWinogradTaps + first_tap) * tap_elements() * kWeight;
    const auto halves = static_cast<std::int64_t>(filters.size());
    RowArgs args;
    args.columns = out().block;
    for (std::int64_t half = 0; half < halves; ++half) {
        args.rows = (in().in_block(block % in().per_group()) + halves - 1 - half) / halves;
        args.operands[0] = {const_cast<char*>(static_cast<const char*>(weights)) + place,
                            out().block * kWeight};
        args.operands[1] = {transformed + half * filter_.ld, halves * filter_.ld * kFloat};
        (*filters[static_cast<std::size_t>(half)])(args);
    }
}

void WinogradPass::transform_weights(const void* weights, float* transformed) const {
    parallel_for(out().count(), [&](std::int64_t block) {
        for (std::int64_t c = 0; c < in().per_group(); ++c) {
            transform_block(weights, block * in().per_group() + c, filters_,
                            transformed + block * floats(filter_) + c * in().block * filter_.ld);
        }
    });
}

void WinogradPass::expand(const Task& task, Range lines, std::int64_t block) const {
    in_->transform({.pixels = task.tensors.src, .slots = task.slots + block * in().block},
                   slots_.ld, task.tiles, lines, task.group * in().per_group() + block);
}

// The result channels of some tasks of their nest.
void WinogradPass::compute(const Task& task, Range channels) const {
    channels_.run(channels, [&](const LoopNest::Ranges& ranges) {
        for (std::int64_t k = ranges[0].begin; k < ranges[0].end; ++k) {
            multiply(task, k);
            reduce(task, k);
        }
    });
}

void WinogradPass::multiply(const Task& task, std::int64_t k) const {
    const std::int64_t out_block = task.group * out().per_group() + k;
    const std::int64_t columns = whole_vectors(out().in_block(k));
    const std::int64_t channels = in().channels;
    const int threads = std::min(task.threads, num_threads());
    if (task.tensors.transformed != nullptr) {
        products_.plan({task.tiles.counts(), columns, channels})
            .run({.a = task.slots,
                  .b = task.tensors.transformed + out_block * floats(filter_),
                  .c = task.sums},
                 nullptr, threads);
        return;
    }
    for (std::int64_t c = 0; c < channels; c += in().block) {
        const std::int64_t block = c / in().block;
        transform_block(task.tensors.weights, out_block * in().per_group() + block, panel_filters_,
                        task.filter);
        products_.plan({task.tiles.counts(), columns, in().in_block(block), false, true})
            .run({.a = task.slots + c, .b = task.filter, .c = task.sums, .accumulate = c > 0},
                 nullptr, threads);
    }
}

void WinogradPass::reduce(const Task& task, std::int64_t k) const {
    const float* bias = task.tensors.bias;
    if (bias != nullptr) bias += task.group * out().channels + k * out().block;
    const Blocks pieces = task.tiles.pieces(1, std::min(task.threads, num_threads()));
    parallel_for(pieces.count(), [&](std::int64_t piece) {
        out_->transform({.pixels = task.tensors.result,
                         .slots = task.sums,
                         .bias = bias,
                         .residual = task.tensors.residual},
                        sums_.ld, task.tiles, pieces.at(piece), task.group * out().per_group() + k);
    });
}

}  // namespace dlprim
