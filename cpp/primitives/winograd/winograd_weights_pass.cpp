#include "primitives/winograd/winograd_weights_pass.h"

#include <algorithm>
#include <stdexcept>

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

// Columns of a group: whole vectors, so that none writes into the next group.
std::int64_t width_of_group(const ChannelBlocks& blocks) { return whole_vectors(blocks.channels); }

TileGrid grid_of(const ConvShape& shape, int tile) {
    return {shape.N, axis_tiles(shape.P(), tile), axis_tiles(shape.Q(), tile)};
}

std::vector<Loop> loops_of(const TileGrid& grid) {
    return {{'n', grid.images}, {'h', grid.rows.count()}, {'w', grid.columns.count()}};
}

TileInputs tensor_of(const ConvProblem& problem, int tile, PatchKind kind) {
    const ConvShape& shape = problem.shape;
    TileInputs::Tensor it{.kind = kind, .dtype = problem.dtype, .layout = problem.layout};
    if (kind == PatchKind::input) {
        it.blocks = src_blocks(shape);
        it.height = shape.H;
        it.width = shape.W;
        it.offset_h = -shape.pad_top;
        it.offset_w = -shape.pad_left;
    } else {
        it.blocks = dst_blocks(shape);
        it.height = shape.P();
        it.width = shape.Q();
    }
    return {it, tile};
}

// Blocks of in channels of a group change fastest, so that neighbours read the same gradients.
std::int64_t pairs_of(const ConvProblem& problem) {
    return dst_blocks(problem.shape).count() * src_blocks(problem.shape).per_group();
}

// Of more pairs, copies would take more memory than the operands.
std::int64_t most_parts(const ConvProblem& problem) {
    return pairs_of(problem) > kPairsToKeep ? 1 : kMostParts;
}

}  // namespace

std::vector<Loop> WinogradWeightsPass::loops(const ConvProblem& problem, int tile) {
    return loops_of(grid_of(problem.shape, tile));
}

std::int64_t WinogradWeightsPass::parts_of(const ConvProblem& problem, int tile) {
    const TileGrid grid = grid_of(problem.shape, tile);
    const std::int64_t tiles = grid.images * grid.rows.count() * grid.columns.count();
    const std::int64_t worth = pairs_of(problem) < kPairsToKeep ? kMostParts : tiles / kTilesOfPart;
    return even_parts(grid.images, std::min(most_parts(problem), worth));
}

WinogradWeightsPass::WinogradWeightsPass(const ConvProblem& problem, int tile,
                                         const Schedule& schedule)
    : problem_(problem),
      tile_(tile),
      schedule_(schedule),
      grid_(grid_of(problem.shape, tile)),
      sum_(sum_schedule(schedule, loops_of(grid_).front(), most_parts(problem))),
      blocks_(loops_of(grid_), sum_.within),
      in_{tensor_of(problem, tile, PatchKind::input), src_blocks(problem.shape)},
      out_{tensor_of(problem, tile, PatchKind::gradient), dst_blocks(problem.shape)},
      pairs_(pairs_of(problem)),
      keeps_sums_(pairs_ <= kPairsToKeep),
      reduce_(filter_gradient_function(usable_isa(), tile)) {
    for (const Level& level : sum_.within.levels) {
        if (level.parallel) {
            throw std::invalid_argument("schedule '" + to_string(schedule) + "' shares loop " +
                                        level.letter +
                                        ", expected that threads share n or, without a capital "
                                        "letter, blocks of channels");
        }
    }
    find_blocks();
}

// Which blocks of tiles the nest makes of every part, and the kernels for them.
void WinogradWeightsPass::find_blocks() {
    TileBlockKinds found;
    for (std::int64_t part = 0; part < sum_.parts; ++part) {
        for_each_block(chunk(grid_.images, sum_.parts, part),
                       [&](const TileBlock& tiles) { found.add(tiles); });
    }
    in_.slots =
        slot_panels(found.most_tiles, in_.blocks.groups * width_of_group(in_.blocks), false);
    out_.slots =
        slot_panels(found.most_tiles, out_.blocks.groups * width_of_group(out_.blocks), false);
    sums_ = slot_panels(in_.blocks.block, out_.blocks.block, true);
    for (const TileBlock::Counts& counts : found.kinds) {
        for (const std::int64_t in : {in_.blocks.block, in_.blocks.last()}) {
            for (const std::int64_t out : {out_.blocks.block, out_.blocks.last()}) {
                products_.prepare(grid_, {in_.slots, out_.slots, sums_},
                                  {counts, whole_vectors(out), in, true, true});
            }
        }
    }
}

std::int64_t WinogradWeightsPass::gradient_floats() const {
    return pairs_ * kTaps * kTaps * in_.blocks.block * out_.blocks.block;
}

std::int64_t WinogradWeightsPass::sums_floats(int threads) const {
    return (keeps_sums_ ? pairs_ : threads) * floats(sums_);
}

std::int64_t WinogradWeightsPass::scratch_bytes(DType to, int threads) const {
    return sums_of_parts(to).scratch_bytes() +
           running(threads) * floats_of_worker(threads) * size_of(DType::f32);
}

void WinogradWeightsPass::run(const ConvTensors& tensors, char* scratch, int threads) const {
    const FixedParts parts = sums_of_parts(tensors.to);
    auto* const room = reinterpret_cast<float*>(scratch + parts.scratch_bytes());
    parts.run(tensors.result, scratch, running(threads),
              [&](std::int64_t part, float* gradient, std::int64_t worker) {
                  float* const mine = room + worker * floats_of_worker(threads);
                  sum_part({.src = tensors.src,
                            .diff_dst = tensors.diff_dst,
                            .images = chunk(grid_.images, sum_.parts, part),
                            .inputs = mine,
                            .gradients = mine + floats(in_.slots),
                            .sums = mine + floats(in_.slots) + floats(out_.slots),
                            .diff_weights = gradient,
                            .threads = threads});
              });
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
    parallel_for(pairs_, [&](std::int64_t pair) {
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
        parallel_for(pairs_, [&](std::int64_t pair) {
            multiply(tiles, pair, first, part, part.sums + pair * floats(sums_));
        });
        return;
    }
    const std::int64_t shares = std::min<std::int64_t>(part.threads, pairs_);
    parallel_for(shares, [&](std::int64_t share) {
        float* const sums = part.sums + share * floats(sums_);
        const Range mine = chunk(pairs_, shares, share);
        for (std::int64_t pair = mine.begin; pair < mine.end; ++pair) {
            multiply(tiles, pair, true, part, sums);
            reduce(pair, sums, first, part.diff_weights);
        }
    });
}

void WinogradWeightsPass::expand(const Operand& operand, const void* from, const TileBlock& tiles,
                                 std::int64_t block, float* slots) const {
    const std::int64_t group = block / operand.blocks.per_group();
    const std::int64_t column = group * width_of_group(operand.blocks) +
                                block % operand.blocks.per_group() * operand.blocks.block;
    for (int which = 0; which < TileBlock::kClasses; ++which) {
        operand.tensor.expand(from, grid_, tiles, which, block, operand.slots, slots + column);
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
