// The backward-weights pass of Winograd convolution: inputs and gradients of a block of tiles are
// transformed into slots, every slot is one product with the tiles as its sum, and the products
// are transformed to the gradient of the filters at last.
//   V [slot][tile][in channel]   Y [slot][tile][out channel]   sums [slot][in][out block]
//   sums[slot] += V[slot]^T * Y[slot]
// Source: as winograd_pass.h, with the transposed transforms.
//
// The Schedule has loops over n images, h and w tile rows and columns, whose innermost levels leave
// a block of tiles. With a capital N outside the minibatch falls into fixed parts (fixed_parts.h);
// else threads share the blocks of channels of one gradient. Either way the result is the same bits
// for any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "primitives/conv/conv_pass.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/winograd/winograd_problem.h"
#include "primitives/winograd/winograd_products.h"

namespace dlprim {

class WinogradWeightsPass {
public:
    // Throws std::invalid_argument when the schedule does not fit.
    WinogradWeightsPass(const WinogradProblem& problem, const Schedule& schedule);

    static std::vector<Loop> loops(const WinogradProblem& problem);
    // That the minibatch should fall into.
    static std::int64_t parts_of(const WinogradProblem& problem);

    std::int64_t scratch_bytes(DType to, int threads) const;
    // Reads src and diff_dst; the result is [Kb][Cb][R][S][bc][bk].
    void run(const ConvTensors& tensors, char* scratch, int threads) const;
    std::vector<std::string> kernel_names() const { return products_.kernel_names(); }

private:
    // One of the two operands of the products.
    struct Operand {
        ChannelBlocks blocks = {};
        SlotPanels slots = {};
        std::optional<TensorTiles> tiles = {};

        // Columns of a group, so that each begins on a cache line.
        std::int64_t width_of_group() const { return whole_vectors(blocks.channels); }
        // Of a block, counted over all groups, in a row of slots.
        std::int64_t column(std::int64_t block) const {
            return block / blocks.per_group() * width_of_group() +
                   block % blocks.per_group() * blocks.block;
        }
    };
    // A share of the minibatch and the scratch for it.
    struct Part {
        const ConvTensors& tensors;
        Range images;
        float* inputs = nullptr;     // V
        float* gradients = nullptr;  // Y
        float* sums = nullptr;       // of all pairs of blocks of channels, or one for each thread
        float* diff_weights = nullptr;
        int threads = 1;
    };

    FixedParts sums_of_parts(DType to) const { return {sum_.parts, gradient_floats(), to}; }
    int workers(int threads) const {
        return static_cast<int>(std::min<std::int64_t>(threads, sum_.parts));
    }
    std::int64_t floats_of_worker(int threads) const {
        return floats(in_.slots) + floats(out_.slots) + sums_floats(threads);
    }
    void find_blocks();
    // Calls visit(const TileBlock&) for a part of the minibatch, in the order of the schedule.
    template <class Visit>
    void for_each_block(Range images, const Visit& visit) const;
    std::int64_t floats(const SlotPanels& panels) const { return grid_.slots() * panels.stride; }
    std::int64_t gradient_floats() const;
    std::int64_t sums_floats(int threads) const {
        return (keeps_sums_ ? pairs_ : threads) * floats(sums_);
    }
    void sum_part(const Part& part) const;
    void sum_block(const TileBlock& tiles, bool first, const Part& part) const;
    // Lines of a block of tiles of a block of channels.
    struct Lines {
        const TileBlock& tiles;
        Range range;
        std::int64_t block;
    };
    void expand(const Operand& operand, const void* from, const Lines& lines, float* slots) const;
    void multiply(const TileBlock& tiles, std::int64_t pair, bool first, const Part& part,
                  float* sums) const;
    void reduce(std::int64_t pair, const float* sums, bool first, float* diff_weights) const;

    TileGrid grid_;
    SumSchedule sum_;
    LoopNest blocks_;  // n, h, w of a part
    Operand in_;
    Operand out_;
    SlotPanels sums_;
    WinogradProducts products_;
    std::int64_t pairs_;  // of blocks of channels
    bool keeps_sums_;     // over the blocks of tiles, of all pairs
    std::array<std::shared_ptr<const RowKernel>, 2> reduce_;  // which add to what is there, or not
};

}  // namespace dlprim
