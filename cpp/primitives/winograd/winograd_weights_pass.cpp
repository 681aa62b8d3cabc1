#include "primitives/winograd/winograd_weights_pass.h"

#include <algorithm>
#include <stdexcept>

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kMostParts = 8;
// Sums of at most this many pairs of blocks of channels are kept from one block of tiles to the
// next.
constexpr std::int64_t kPairsToKeep = 4;
// As many pairs as that leave the cache from one block of tiles to the next, so that the blocks of
// a part have to be worth it.
constexpr std::int64_t kTilesOfPart = 160;
// Channels of a pair whose sums become gradients in one task, where threads share a pair.
constexpr std::int64_t kRowsToReduce = 16;

// Blocks of in channels of a group change fastest, so that neighbours read the same gradients.
std::int64_t pairs_of(const WinogradProblem& problem) {
    return problem.out.blocks.count() * problem.in.blocks.per_group();
}

// Of more pairs, copies would take more memory than the operands.
std::int64_t most_parts(const WinogradProblem& problem) {
    return pairs_of(problem) > kPairsToKeep ? 1 : kMostParts;
}

}  // namespace

std::vector<Loop> WinogradWeightsPass::loops(const WinogradProblem& problem) {
    const TileGrid grid = problem.grid();
    return {{'n', grid.images}, {'h', grid.rows.count()}, {'w', grid.columns.count()}};
}

std::int64_t WinogradWeightsPass::parts_of(const WinogradProblem& problem) {
    const TileGrid grid = problem.grid();
    const std::int64_t worth =
        pairs_of(problem) < kPairsToKeep ? kMostParts : grid.count() / kTilesOfPart;
    return even_parts(grid.images, std::min(most_parts(problem), worth));
}

WinogradWeightsPass::WinogradWeightsPass(const WinogradProblem& problem, const Schedule& schedule)
    : grid_(problem.grid()),
      sum_(sum_schedule(schedule, loops(problem).front(), most_parts(problem))),
      blocks_(loops(problem), sum_.within),
      in_{problem.in.blocks},
      out_{problem.out.blocks},
      pairs_(pairs_of(problem)),
      keeps_sums_(pairs_ <= kPairsToKeep) {
    for (const Level& level : sum_.within.levels) {
        if (level.parallel) {
            throw std::invalid_argument("schedule '" + to_string(schedule) + "' shares loop " +
                                        level.letter +
                                        ", expected that threads share n or, without a capital "
                                        "letter, blocks of channels");
        }
    }
    find_blocks();
    in_.tiles.emplace(problem, problem.in, in_.slots.stride);
    out_.tiles.emplace(problem, problem.out, out_.slots.stride);
    const std::int64_t tap = in_.blocks.block * out_.blocks.block;
    for (const bool adds : {false, true}) {
        reduce_[adds ? 1 : 0] = tile_kernel({.kind = TileKind::filter_gradient,
                                             .tile_h = problem.tile,
                                             .tile_w = problem.tile,
                                             .row = kWinogradTaps * tap,
                                             .pixel = tap,
                                             .slot_stride = sums_.stride,
                                             .residual = adds});
    }
}

template <class Visit>
void WinogradWeightsPass::for_each_block(Range images, const Visit& visit) const {
    blocks_.run([&](const LoopNest::Ranges& ranges) {
        const Range mine{std::max(ranges[0].begin, images.begin),
                         std::min(ranges[0].end, images.end)};
        if (mine.size() <= 0) return;
        visit(TileBlock(grid_, mine, ranges[1], ranges[2]));
    });
}

// Which blocks of tiles the nest makes of every part, and the kernels for them.
void WinogradWeightsPass::find_blocks() {
    TileBlockKinds found;
    for (std::int64_t part = 0; part < sum_.parts; ++part) {
        for_each_block(chunk(grid_.images, sum_.parts, part),
                       [&](const TileBlock& tiles) { found.add(tiles); });
    }
    for (Operand* const it : {&in_, &out_}) {
        it->slots = slot_panels(room_for_tiles(found.most_tiles),
                                it->blocks.groups * it->width_of_group(), false);
    }
    sums_ = slot_panels(in_.blocks.block, out_.blocks.block, true);
    for (const TileBlock::Counts& counts : found.kinds) {
        for (const std::int64_t in : {in_.blocks.block, in_.blocks.last()}) {
            for (const std::int64_t out : {out_.blocks.block, out_.blocks.last()}) {
                products_.prepare(grid_, {in_.slots, out_.slots, sums_},
                                  {counts, out, in, true, true});
            }
        }
    }
}

std::int64_t WinogradWeightsPass::gradient_floats() const {
    return pairs_ * kWinogradTaps * kWinogradTaps * in_.blocks.block * out_.blocks.block;
}

std::int64_t WinogradWeightsPass::scratch_bytes(DType to, int threads) const {
    return sums_of_parts(to).scratch_bytes() +
           workers(threads) * floats_of_worker(threads) * size_of(DType::f32);
}

void WinogradWeightsPass::run(const ConvTensors& tensors, char* scratch, int threads) const {
    const FixedParts parts = sums_of_parts(tensors.to);
    auto* const room = reinterpret_cast<float*>(scratch + parts.scratch_bytes());
    parts.run(tensors.result, scratch, threads,
              [&](std::int64_t part, float* gradient, std::int64_t worker) {
                  float* const mine = room + worker * floats_of_worker(threads);
                  sum_part({.tensors = tensors,
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
    const Blocks pieces = tiles.pieces(in_blocks + out_blocks, num_threads());
    parallel_for((in_blocks + out_blocks) * pieces.count(), [&](std::int64_t task) {
        const Merged it = merged(in_blocks, out_blocks, task / pieces.count());
        const Lines lines{tiles, pieces.at(task % pieces.count()), it.index};
        if (it.is_first) {
            expand(in_, part.tensors.src, lines, part.inputs);
        } else {
            expand(out_, part.tensors.diff_dst, lines, part.gradients);
        }
    });
    if (keeps_sums_) {
        parallel_for(pairs_, [&](std::int64_t pair) {
            multiply(tiles, pair, first, part, part.sums + pair * floats(sums_));
        });
        return;
    }
    parallel_ranges(pairs_, part.threads, [&](Range pairs, int seat) {
        float* const sums = part.sums + seat * floats(sums_);
        for (std::int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
            multiply(tiles, pair, true, part, sums);
            reduce(pair, sums, first, part.diff_weights);
        }
    });
}

void WinogradWeightsPass::expand(const Operand& operand, const void* from, const Lines& lines,
                                 float* slots) const {
    operand.tiles->transform({.pixels = from, .slots = slots + operand.column(lines.block)},
                             operand.slots.ld, lines.tiles, lines.range, lines.block);
}

void WinogradWeightsPass::multiply(const TileBlock& tiles, std::int64_t pair, bool first,
                                   const Part& part, float* sums) const {
    const std::int64_t out = pair / in_.blocks.per_group();
    const std::int64_t group = out / out_.blocks.per_group();
    const std::int64_t in = pair % in_.blocks.per_group();
    products_
        .plan({tiles.counts(), out_.blocks.in_block(out % out_.blocks.per_group()),
               in_.blocks.in_block(in), true, true})
        .run({.a = part.inputs + in_.column(group * in_.blocks.per_group() + in),
              .b = part.gradients + out_.column(out),
              .c = sums,
              .accumulate = !first},
             nullptr, num_threads());
}

void WinogradWeightsPass::reduce(std::int64_t pair, const float* sums, bool first,
                                 float* diff_weights) const {
    const std::int64_t out = pair / in_.blocks.per_group();
    const std::int64_t in = pair % in_.blocks.per_group();
    const std::int64_t width = out_.blocks.block;
    const std::int64_t filters = kWinogradTaps * kWinogradTaps * in_.blocks.block * width;
    const std::int64_t channels = in_.blocks.in_block(in);
    const Blocks rows{channels, num_threads() == 1 ? channels : kRowsToReduce};
    parallel_for(rows.count(), [&](std::int64_t index) {
        const std::int64_t row = rows.at(index).begin;
        RowArgs args;
        args.rows = rows.at(index).size();
        args.columns = out_.blocks.in_block(out % out_.blocks.per_group());
        args.operands[0] = {const_cast<float*>(sums) + row * sums_.ld,
                            sums_.ld * size_of(DType::f32)};
        args.operands[1] = args.operands[2] = {diff_weights + pair * filters + row * width,
                                               width * size_of(DType::f32)};
        (*reduce_[first ? 0 : 1])(args);
    });
}

}  // namespace dlprim
