#include "primitives/winograd/winograd_weights_pass.h"

#include <algorithm>
#include <stdexcept>

#include "primitives/conv/conv_weights_sum.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kTaps = 3;
constexpr std::int64_t kMostParts = 8;
// Sums of at most this many pairs of blocks of channels are kept from one block of tiles to the
// next.
constexpr std::int64_t kPairsToKeep = 4;
// As many pairs as that leave the cache from one block of tiles to the next, so that the blocks of
// a part have to be worth it.
constexpr std::int64_t kTilesOfPart = 160;

const char* at(const void* base, std::int64_t bytes) {
    return static_cast<const char*>(base) + bytes;
}

// Columns of a group: whole vectors, so that none writes into the next group.
std::int64_t width_of_group(const ChannelBlocks& blocks) { return whole_vectors(blocks.channels); }

TileGrid grid_of(const ConvShape& shape, int tile) {
    return {shape.N, axis_tiles(shape.P(), tile), axis_tiles(shape.Q(), tile)};
}

std::vector<Loop> loops_of(const TileGrid& grid) {
    return {{'n', grid.images}, {'h', grid.rows.count()}, {'w', grid.columns.count()}};
}

}  // namespace

std::vector<Loop> WinogradWeightsPass::loops(const ConvProblem& problem, int tile) {
    return loops_of(grid_of(problem.shape, tile));
}

std::int64_t WinogradWeightsPass::parts_of(const ConvProblem& problem, int tile) {
    const std::int64_t pairs =
        dst_blocks(problem.shape).count() * src_blocks(problem.shape).per_group();
    const TileGrid grid = grid_of(problem.shape, tile);
    const std::int64_t most = std::clamp<std::int64_t>(grid.images, 1, kMostParts);
    if (pairs > kPairsToKeep) return 1;
    if (pairs < kPairsToKeep) return most;
    const std::int64_t tiles = grid.images * grid.rows.count() * grid.columns.count();
    std::int64_t parts = 1;
    while (2 * parts <= most && tiles >= 2 * parts * kTilesOfPart) parts *= 2;
    return parts;
}

WinogradWeightsPass::WinogradWeightsPass(const ConvProblem& problem, int tile,
                                         const Schedule& schedule)
    : problem_(problem),
      tile_(tile),
      schedule_(schedule),
      grid_(grid_of(problem.shape, tile)),
      blocks_(loops_of(grid_), schedule),
      in_(operand(PatchKind::input)),
      out_(operand(PatchKind::gradient)),
      reduce_(filter_gradient_function(usable_isa(), tile)) {
    for (const Level& level : schedule.levels) {
        if (level.parallel && level.letter != 'n') {
            throw std::invalid_argument("schedule '" + to_string(schedule) + "' shares loop " +
                                        level.letter +
                                        ", expected that threads share n or, without a capital "
                                        "letter, blocks of channels");
        }
        in_parts_ = in_parts_ || level.parallel;
    }
    if (in_parts_) parts_ = parts_of(problem, tile);
    find_blocks();
    keeps_sums_ = pairs() <= kPairsToKeep || in_parts_;
}

WinogradWeightsPass::Operand WinogradWeightsPass::operand(PatchKind kind) const {
    const ConvShape& shape = problem_.shape;
    const bool input = kind == PatchKind::input;
    Operand it;
    it.blocks = input ? src_blocks(shape) : dst_blocks(shape);
    it.height = input ? shape.H : shape.P();
    it.width = input ? shape.W : shape.Q();
    it.strides = activation_strides(problem_.layout, it.blocks, it.height, it.width);
    it.offset_h = input ? -shape.pad_top : 0;
    it.offset_w = input ? -shape.pad_left : 0;
    it.rim = input ? static_cast<int>(kTaps) - 1 : 0;
    for (int which = 0; which < TileBlock::kClasses; ++which) {
        const int tile_h = TileBlock::is_large_h(which) ? tile_ : 3;
        const int tile_w = TileBlock::is_large_w(which) ? tile_ : 3;
        if (tile_ == 2 && (tile_h == 3 || tile_w == 3)) continue;
        for (const bool inside : {false, true}) {
            it.functions[which][inside ? 1 : 0] =
                expand_function(usable_isa(), kind, problem_.dtype, tile_h, tile_w, inside);
        }
    }
    return it;
}

// Which blocks of tiles the nest makes of every part, and the kernels for them.
void WinogradWeightsPass::find_blocks() {
    std::vector<TileBlock::Counts> kinds;
    for (std::int64_t part = 0; part < parts_; ++part) {
        for_each_block(chunk(grid_.images, parts_, part), [&](const TileBlock& tiles) {
            most_tiles_ = std::max(most_tiles_, tiles_of(tiles.counts()));
            const auto known = std::find(kinds.begin(), kinds.end(), tiles.counts());
            if (known == kinds.end()) kinds.push_back(tiles.counts());
        });
    }
    in_.slots = slot_panels(most_tiles_, in_.blocks.groups * width_of_group(in_.blocks), false);
    out_.slots = slot_panels(most_tiles_, out_.blocks.groups * width_of_group(out_.blocks), false);
    sums_ = slot_panels(in_.blocks.block, out_.blocks.block, true);
    for (const TileBlock::Counts& counts : kinds) {
        for (const std::int64_t in : {in_.blocks.block, in_.blocks.last()}) {
            for (const std::int64_t out : {out_.blocks.block, out_.blocks.last()}) {
                products_.prepare(grid_, {in_.slots, out_.slots, sums_},
                                  {counts, whole_vectors(out), in, true, true});
            }
        }
    }
}

// Blocks of in channels of a group change fastest, so that neighbours read the same gradients.
std::int64_t WinogradWeightsPass::pairs() const {
    return out_.blocks.count() * in_.blocks.per_group();
}

std::int64_t WinogradWeightsPass::gradient_floats() const {
    return pairs() * kTaps * kTaps * in_.blocks.block * out_.blocks.block;
}

std::int64_t WinogradWeightsPass::sums_floats(int threads) const {
    return (keeps_sums_ ? pairs() : threads) * floats(sums_);
}

std::int64_t WinogradWeightsPass::scratch_bytes(DType to, int threads) const {
    const std::int64_t running = in_parts_ ? std::min<std::int64_t>(threads, parts_) : 1;
    const std::int64_t each = floats(in_.slots) + floats(out_.slots) + sums_floats(threads);
    const bool copies = parts_ > 1 || to != DType::f32;
    return (running * each + (copies ? parts_ * gradient_floats() : 0)) * size_of(DType::f32);
}

void WinogradWeightsPass::run(const void* src, const void* diff_dst, DType to, void* diff_weights,
                              char* scratch, int threads) const {
    auto* const room = reinterpret_cast<float*>(scratch);
    const std::int64_t each = floats(in_.slots) + floats(out_.slots) + sums_floats(threads);
    const std::int64_t running = in_parts_ ? std::min<std::int64_t>(threads, parts_) : 1;
    const bool copies = parts_ > 1 || to != DType::f32;
    float* const results = copies ? room + running * each : static_cast<float*>(diff_weights);
    parallel_for(running, [&](std::int64_t worker) {
        float* const mine = room + worker * each;
        const Range shares = chunk(parts_, running, worker);
        for (std::int64_t part = shares.begin; part < shares.end; ++part) {
            sum_part({.src = src,
                      .diff_dst = diff_dst,
                      .images = chunk(grid_.images, parts_, part),
                      .inputs = mine,
                      .gradients = mine + floats(in_.slots),
                      .sums = mine + floats(in_.slots) + floats(out_.slots),
                      .diff_weights = results + part * gradient_floats(),
                      .threads = threads});
        }
    });
    if (copies)
        add_copies({results, gradient_floats(), gradient_floats(), parts_}, to, diff_weights);
}

void WinogradWeightsPass::sum_part(const Part& part) const {
    if (part.images.size() == 0) {
        std::fill_n(part.diff_weights, gradient_floats(), 0.0F);
        return;
    }
    bool first = true;
    for_each_block(part.images, [&](const TileBlock& tiles) {
        sum_block(tiles, first, part);
        first = false;
    });
    if (!keeps_sums_) return;
    parallel_for(pairs(), [&](std::int64_t pair) {
        reduce(pair, part.sums + pair * floats(sums_), true, part.diff_weights);
    });
}

void WinogradWeightsPass::sum_block(const TileBlock& tiles, bool first, const Part& part) const {
    // As the products are shared: a thread then has most of the gradients that it reads itself.
    const std::int64_t in_blocks = in_.blocks.count();
    const std::int64_t out_blocks = out_.blocks.count();
    parallel_for(in_blocks + out_blocks, [&](std::int64_t task) {
        const Merged it = merged(in_blocks, out_blocks, task);
        if (it.is_first) {
            expand(in_, part.src, tiles, it.index, part.inputs);
        } else {
            expand(out_, part.diff_dst, tiles, it.index, part.gradients);
        }
    });
    if (keeps_sums_) {
        parallel_for(pairs(), [&](std::int64_t pair) {
            multiply(tiles, pair, first, part, part.sums + pair * floats(sums_));
        });
        return;
    }
    const std::int64_t shares = std::min<std::int64_t>(part.threads, pairs());
    parallel_for(shares, [&](std::int64_t share) {
        float* const sums = part.sums + share * floats(sums_);
        const Range mine = chunk(pairs(), shares, share);
        for (std::int64_t pair = mine.begin; pair < mine.end; ++pair) {
            multiply(tiles, pair, true, part, sums);
            reduce(pair, sums, first, part.diff_weights);
        }
    });
}

void WinogradWeightsPass::expand(const Operand& operand, const void* from, const TileBlock& tiles,
                                 std::int64_t block, float* slots) const {
    const std::int64_t element = size_of(problem_.dtype);
    const std::int64_t group = block / operand.blocks.per_group();
    const std::int64_t inner = block % operand.blocks.per_group();
    TilePatch patch{.row = operand.strides.row,
                    .pixel = operand.strides.pixel,
                    .channels = operand.blocks.in_block(inner),
                    .slot_stride = operand.slots.stride};
    const std::int64_t first = group * operand.strides.group + inner * operand.strides.block;
    const std::int64_t column =
        group * width_of_group(operand.blocks) + inner * operand.blocks.block;
    for (int which = 0; which < TileBlock::kClasses; ++which) {
        const int high = (TileBlock::is_large_h(which) ? tile_ : 3) + operand.rim;
        const int wide = (TileBlock::is_large_w(which) ? tile_ : 3) + operand.rim;
        tiles.for_each(which, [&](std::int64_t t, std::int64_t n, std::int64_t h, std::int64_t w) {
            const std::int64_t y = grid_.rows.begin(h) + operand.offset_h;
            const std::int64_t x = grid_.columns.begin(w) + operand.offset_w;
            const Range rows = existing(y, high, operand.height);
            const Range columns = existing(x, wide, operand.width);
            const std::int64_t offset = first + n * operand.strides.image +
                                        y * operand.strides.row + x * operand.strides.pixel;
            patch.first = at(from, offset * element);
            patch.rows_begin = static_cast<int>(rows.begin);
            patch.rows_end = static_cast<int>(rows.end);
            patch.columns_begin = static_cast<int>(columns.begin);
            patch.columns_end = static_cast<int>(columns.end);
            patch.slots = slots + t * operand.slots.ld + column;
            const bool inside = rows.size() == high && columns.size() == wide;
            operand.functions[which][inside ? 1 : 0](patch);
        });
    }
}

void WinogradWeightsPass::multiply(const TileBlock& tiles, std::int64_t pair, bool first,
                                   const Part& part, float* sums) const {
    const std::int64_t out = pair / in_.blocks.per_group();
    const std::int64_t group = out / out_.blocks.per_group();
    const std::int64_t in = pair % in_.blocks.per_group();
    const std::int64_t first_in = group * width_of_group(in_.blocks) + in * in_.blocks.block;
    const std::int64_t first_out =
        group * width_of_group(out_.blocks) + out % out_.blocks.per_group() * out_.blocks.block;
    products_
        .plan({tiles.counts(), whole_vectors(out_.blocks.in_block(out % out_.blocks.per_group())),
               in_.blocks.in_block(in), true, true})
        .run({.a = part.inputs + first_in,
              .b = part.gradients + first_out,
              .c = sums,
              .accumulate = !first},
             nullptr, 1);
}

void WinogradWeightsPass::reduce(std::int64_t pair, const float* sums, bool first,
                                 float* diff_weights) const {
    const std::int64_t out = pair / in_.blocks.per_group();
    const std::int64_t in = pair % in_.blocks.per_group();
    const std::int64_t width = out_.blocks.block;
    const std::int64_t tap = in_.blocks.block * width;
    float* const block = diff_weights + pair * kTaps * kTaps * tap;
    for (std::int64_t c = 0; c < in_.blocks.in_block(in); ++c) {
        float* const row = block + c * width;
        reduce_({.slots = sums + c * sums_.ld,
                 .slot_stride = sums_.stride,
                 .first = row,
                 .row = kTaps * tap,
                 .pixel = tap,
                 .rows = static_cast<int>(kTaps),
                 .columns = static_cast<int>(kTaps),
                 .channels = out_.blocks.in_block(out % out_.blocks.per_group()),
                 .residual = first ? nullptr : row});
    }
}

}  // namespace dlprim
