#include "primitives/winograd/winograd_pass.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <utility>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaps = 3;

// The levels of `schedule` whose letters are among `letters`, or the others.
Schedule levels_of(const Schedule& schedule, const std::string& letters, bool among) {
    Schedule part;
    for (const Level& level : schedule.levels) {
        if ((letters.find(level.letter) != std::string::npos) == among) {
            part.levels.push_back(level);
        }
    }
    return part;
}

std::vector<Loop> loops_of(const WinogradProblem& problem, bool channels) {
    const TileGrid grid = tile_grid(problem);
    if (channels) return {{'k', problem.out.per_group()}};
    return {{'g', problem.out.groups},
            {'n', grid.images},
            {'h', grid.rows.count()},
            {'w', grid.columns.count()}};
}

bool is_parallel(const Level& level) { return level.parallel; }

// Levels of a single iteration may stand anywhere.
void require_order(const Schedule& schedule, const WinogradProblem& problem) {
    std::map<char, std::int64_t> sizes;
    for (const Loop& loop : loops_of(problem, false)) sizes[loop.letter] = loop.extent;
    bool channels = false;
    for (const Level& level : schedule.levels) {
        if (level.letter == 'k') {
            channels = true;
            continue;
        }
        std::int64_t& size = sizes[level.letter];
        const bool repeats = level.step < size;
        size = std::min(size, level.step);
        if (channels && repeats) {
            throw std::invalid_argument("schedule '" + to_string(schedule) +
                                        "' has blocks of tiles inside k, expected the levels of k "
                                        "behind those of g, n, h and w");
        }
    }
}

}  // namespace

WinogradProblem winograd_problem(const ConvProblem& problem, PassKind pass, int tile) {
    const ConvShape& shape = problem.shape;
    WinogradProblem it{.images = shape.N,
                       .in = src_blocks(shape),
                       .out = dst_blocks(shape),
                       .in_height = shape.H,
                       .in_width = shape.W,
                       .out_height = shape.P(),
                       .out_width = shape.Q(),
                       .offset_h = -shape.pad_top,
                       .offset_w = -shape.pad_left,
                       .turned = pass == PassKind::backward_data,
                       .dtype = problem.dtype,
                       .layout = problem.layout,
                       .tile = tile};
    if (!it.turned) return it;
    std::swap(it.in, it.out);
    std::swap(it.in_height, it.out_height);
    std::swap(it.in_width, it.out_width);
    it.offset_h = shape.pad_top - (kTaps - 1);
    it.offset_w = shape.pad_left - (kTaps - 1);
    return it;
}

TileGrid tile_grid(const WinogradProblem& problem) {
    return {problem.images, axis_tiles(problem.out_height, problem.tile),
            axis_tiles(problem.out_width, problem.tile)};
}

std::vector<Loop> WinogradPass::loops(const WinogradProblem& problem) {
    std::vector<Loop> loops = loops_of(problem, false);
    loops.push_back(loops_of(problem, true).front());
    return loops;
}

WinogradPass::WinogradPass(const WinogradProblem& problem, const Schedule& schedule)
    : problem_(problem),
      schedule_(schedule),
      grid_(tile_grid(problem)),
      blocks_(loops_of(problem, false), levels_of(schedule, "k", false)),
      channels_(loops_of(problem, true), levels_of(schedule, "k", true)),
      in_({.dtype = problem.dtype,
           .layout = problem.layout,
           .blocks = problem.in,
           .height = problem.in_height,
           .width = problem.in_width,
           .offset_h = problem.offset_h,
           .offset_w = problem.offset_w},
          problem.tile),
      out_(activation_strides(problem.layout, problem.out, problem.out_height, problem.out_width)) {
    require_order(schedule, problem);
    const auto& outer = blocks_.schedule().levels;
    const auto& inner = channels_.schedule().levels;
    shares_blocks_ = std::none_of(inner.begin(), inner.end(), is_parallel);
    if (!shares_blocks_ && std::any_of(outer.begin(), outer.end(), is_parallel)) {
        throw std::invalid_argument("schedule '" + to_string(schedule) +
                                    "' shares both blocks of tiles and channels, expected capital "
                                    "letters among g, n, h and w or k alone");
    }
    choose_functions();
    find_blocks();
}

WinogradPass::Box WinogradPass::box_at(const LoopNest::Ranges& ranges) const {
    return {ranges[0].begin, ranges[1], ranges[2], ranges[3]};
}

// Which blocks of tiles the nest makes, and the kernels for them.
void WinogradPass::find_blocks() {
    TileBlockKinds found;
    blocks_.run([&](const LoopNest::Ranges& ranges) {
        const Box box = box_at(ranges);
        if (ranges[0].size() > 1) {
            throw std::invalid_argument("schedule '" + to_string(schedule_) +
                                        "' takes several groups at once, expected step 1 for g");
        }
        found.add(TileBlock(grid_, box.images, box.rows, box.columns));
    });
    boxes_ = found.blocks;
    slots_ = slot_panels(found.most_tiles, problem_.in.channels, false);
    filter_ = slot_panels(problem_.in.channels, problem_.out.block, true);
    panel_ = slot_panels(problem_.in.block, problem_.out.block, true);
    sums_ = slot_panels(found.most_tiles, problem_.out.block, true);
    overlays_ = shares_blocks_ && problem_.out.per_group() == 1;
    if (overlays_) slots_.stride = sums_.stride = std::max(slots_.stride, sums_.stride);
    for (const TileBlock::Counts& counts : found.kinds) prepare(counts);
}

void WinogradPass::prepare(const TileBlock::Counts& counts) {
    for (const std::int64_t block : {std::int64_t{0}, problem_.out.per_group() - 1}) {
        WinogradProducts::Kind kind{counts, out_columns(block), problem_.in.channels};
        products_.prepare(grid_, {slots_, filter_, sums_}, kind);
        if (!on_the_fly()) continue;
        kind.accumulates = true;
        for (const std::int64_t channels : {problem_.in.block, problem_.in.last()}) {
            kind.channels = channels;
            products_.prepare(grid_, {slots_, panel_, sums_}, kind);
        }
    }
}

void WinogradPass::choose_functions() {
    const Isa isa = usable_isa();
    const int tile = problem_.tile;
    const bool pairs = problem_.dtype == DType::bf16;
    const PatchKind filter = pairs ? PatchKind::even_pair_filter : PatchKind::filter;
    filter_functions_[0] = expand_function(isa, filter, DType::f32, tile, tile, true);
    filter_functions_[1] =
        expand_function(isa, PatchKind::odd_pair_filter, DType::f32, tile, tile, true);
    for (int which = 0; which < TileBlock::kClasses; ++which) {
        reduce_[which] =
            reduce_function(isa, problem_.dtype, tile_side(tile, TileBlock::is_large_h(which)),
                            tile_side(tile, TileBlock::is_large_w(which)));
    }
}

// Whole vectors of a block of result channels.
std::int64_t WinogradPass::out_columns(std::int64_t out_block) const {
    const bool last = out_block == problem_.out.per_group() - 1;
    return whole_vectors(last ? problem_.out.last() : problem_.out.block);
}

std::int64_t WinogradPass::transformed_floats() const {
    return problem_.out.count() * floats(filter_);
}

// Of a thread that has its own blocks of tiles.
std::int64_t WinogradPass::place_floats() const {
    return floats(slots_) + (overlays_ ? slots_.stride : floats(sums_));
}

std::int64_t WinogradPass::scratch_bytes(bool transforms, int threads) const {
    std::int64_t all =
        shares_blocks_ ? threads * place_floats() : floats(slots_) + threads * floats(sums_);
    if (transforms) all += on_the_fly() ? threads * floats(panel_) : transformed_floats();
    return all * size_of(DType::f32);
}

void WinogradPass::run(const WinogradTensors& tensors, char* scratch, int threads) const {
    if (boxes_ == 0) return;
    auto* room = reinterpret_cast<float*>(scratch);
    WinogradTensors ready = tensors;
    if (tensors.transformed == nullptr && !on_the_fly()) {
        transform_weights(tensors.weights, room);
        ready.transformed = room;
        room += transformed_floats();
    }
    if (shares_blocks_) {
        run_sharing_blocks(ready, room, threads);
    } else {
        run_sharing_channels(ready, room, threads);
    }
}

// Every thread has its own blocks of tiles, and with them all result channels.
void WinogradPass::run_sharing_blocks(const WinogradTensors& tensors, float* scratch,
                                      int threads) const {
    const std::int64_t tasks = blocks_.tasks();
    const std::int64_t parts = std::min<std::int64_t>(threads, tasks);
    parallel_for(parts, [&](std::int64_t part) {
        float* const mine = scratch + part * place_floats();
        const Place place{.slots = mine + (overlays_ ? slots_.stride : 0),
                          .sums = mine + (overlays_ ? 0 : floats(slots_))};
        blocks_.run(chunk(tasks, parts, part), [&](const LoopNest::Ranges& ranges) {
            const Box box = box_at(ranges);
            const TileBlock tiles(grid_, box.images, box.rows, box.columns);
            for (std::int64_t piece = 0; piece < expand_pieces(); ++piece) {
                expand(tensors.src, box, tiles, piece, place.slots);
            }
            compute(tensors, box, tiles, {0, channels_.tasks()}, place);
        });
    });
}

// One block of tiles after the other; the threads share first its inputs, then its results.
void WinogradPass::run_sharing_channels(const WinogradTensors& tensors, float* scratch,
                                        int threads) const {
    const std::int64_t tasks = channels_.tasks();
    const std::int64_t parts = std::min<std::int64_t>(threads, tasks);
    float* const sums = scratch + floats(slots_);
    float* const filters = sums + threads * floats(sums_);
    blocks_.run([&](const LoopNest::Ranges& ranges) {
        const Box box = box_at(ranges);
        const TileBlock tiles(grid_, box.images, box.rows, box.columns);
        parallel_for(expand_pieces(),
                     [&](std::int64_t piece) { expand(tensors.src, box, tiles, piece, scratch); });
        parallel_for(parts, [&](std::int64_t part) {
            const Place place{.slots = scratch,
                              .sums = sums + part * floats(sums_),
                              .filter = filters + part * floats(panel_)};
            compute(tensors, box, tiles, chunk(tasks, parts, part), place);
        });
    });
}

}  // namespace dlprim
