#include "primitives/winograd/winograd_pass.h"

#include <algorithm>
#include <map>
#include <stdexcept>

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

WinogradProblem winograd_forward(const ConvProblem& problem, int tile) {
    const ConvShape& shape = problem.shape;
    return {.images = shape.N,
            .in = src_blocks(shape),
            .out = dst_blocks(shape),
            .in_height = shape.H,
            .in_width = shape.W,
            .out_height = shape.P(),
            .out_width = shape.Q(),
            .offset_h = -shape.pad_top,
            .offset_w = -shape.pad_left,
            .dtype = problem.dtype,
            .layout = problem.layout,
            .tile = tile};
}

WinogradProblem winograd_backward_data(const ConvProblem& problem, int tile) {
    const ConvShape& shape = problem.shape;
    return {.images = shape.N,
            .in = dst_blocks(shape),
            .out = src_blocks(shape),
            .in_height = shape.P(),
            .in_width = shape.Q(),
            .out_height = shape.H,
            .out_width = shape.W,
            .offset_h = shape.pad_top - (kTaps - 1),
            .offset_w = shape.pad_left - (kTaps - 1),
            .turned = true,
            .dtype = problem.dtype,
            .layout = problem.layout,
            .tile = tile};
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
      in_(activation_strides(problem.layout, problem.in, problem.in_height, problem.in_width)),
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
    std::vector<TileBlock::Counts> kinds;
    blocks_.run([&](const LoopNest::Ranges& ranges) {
        const Box box = box_at(ranges);
        if (ranges[0].size() > 1) {
            throw std::invalid_argument("schedule '" + to_string(schedule_) +
                                        "' takes several groups at once, expected step 1 for g");
        }
        const TileBlock tiles(grid_, box.images, box.rows, box.columns);
        most_tiles_ = std::max(most_tiles_, tiles_of(tiles.counts()));
        ++boxes_;
        if (std::find(kinds.begin(), kinds.end(), tiles.counts()) == kinds.end()) {
            kinds.push_back(tiles.counts());
        }
    });
    slots_ = slot_panels(most_tiles_, problem_.in.channels, false);
    filter_ = slot_panels(problem_.in.channels, problem_.out.block, true);
    panel_ = slot_panels(problem_.in.block, problem_.out.block, true);
    sums_ = slot_panels(most_tiles_, problem_.out.block, true);
    overlays_ = shares_blocks_ && problem_.out.per_group() == 1;
    if (overlays_) slots_.stride = sums_.stride = std::max(slots_.stride, sums_.stride);
    for (const TileBlock::Counts& counts : kinds) prepare(counts);
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
    for (int which = 0; which < TileBlock::kClasses; ++which) {
        const bool small = problem_.tile == 2;
        const int tile_h = small ? 2 : TileBlock::is_large_h(which) ? 4 : 3;
        const int tile_w = small ? 2 : TileBlock::is_large_w(which) ? 4 : 3;
        for (const bool inside : {false, true}) {
            expand_[which][inside ? 1 : 0] =
                expand_function(isa, PatchKind::input, problem_.dtype, tile_h, tile_w, inside);
        }
        reduce_[which] = reduce_function(isa, problem_.dtype, tile_h, tile_w);
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
            for (std::int64_t block = 0; block < problem_.in.per_group(); ++block) {
                for (int which = 0; which < TileBlock::kClasses; ++which) {
                    expand(tensors.src, box, tiles, block, which, place.slots);
                }
            }
            channels_.run([&](const LoopNest::Ranges& channels) {
                for (std::int64_t k = channels[0].begin; k < channels[0].end; ++k) {
                    const std::int64_t out_block = box.group * problem_.out.per_group() + k;
                    multiply(tensors, out_block, tiles, place);
                    reduce(tensors, box, tiles, out_block, place.sums);
                }
            });
        });
    });
}

// One block of tiles after the other; the threads share first its inputs, then its results.
void WinogradPass::run_sharing_channels(const WinogradTensors& tensors, float* scratch,
                                        int threads) const {
    const std::int64_t tasks = channels_.tasks();
    const std::int64_t parts = std::min<std::int64_t>(threads, tasks);
    const std::int64_t pieces = problem_.in.per_group() * TileBlock::kClasses;
    float* const sums = scratch + floats(slots_);
    float* const filters = sums + threads * floats(sums_);
    blocks_.run([&](const LoopNest::Ranges& ranges) {
        const Box box = box_at(ranges);
        const TileBlock tiles(grid_, box.images, box.rows, box.columns);
        parallel_for(pieces, [&](std::int64_t piece) {
            expand(tensors.src, box, tiles, piece / TileBlock::kClasses,
                   static_cast<int>(piece % TileBlock::kClasses), scratch);
        });
        parallel_for(parts, [&](std::int64_t part) {
            const Place place{.slots = scratch,
                              .sums = sums + part * floats(sums_),
                              .filter = filters + part * floats(panel_)};
            channels_.run(chunk(tasks, parts, part), [&](const LoopNest::Ranges& channels) {
                for (std::int64_t k = channels[0].begin; k < channels[0].end; ++k) {
                    const std::int64_t out_block = box.group * problem_.out.per_group() + k;
                    multiply(tensors, out_block, tiles, place);
                    reduce(tensors, box, tiles, out_block, place.sums);
                }
            });
        });
    });
}

}  // namespace dlprim
