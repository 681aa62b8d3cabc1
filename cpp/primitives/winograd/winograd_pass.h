// Winograd convolution of 3x3 filters with stride 1: per block of tiles the inputs are transformed
// into slots, every slot is one product of matrices (the one driver, contraction.h), and the
// products are transformed to results while they are hot. It needs up to 4 times fewer
// multiplications than the direct algorithm. Forward and backward-data are the same pass.
//   V [slot][tile][in channel]   U [out block][slot][in channel][out]   M [slot][tile][out]
// Source: Lavin and Gray, arXiv 1509.09308; interpolation points: docs/winograd.md.
//
// Which tiles form a block and in which order blocks are taken is a Schedule over g groups, n
// images, h and w tile rows and columns and k blocks of result channels. Blocks of tiles are
// what the innermost levels of n, h and w leave; k comes last. Threads share blocks of tiles
// (a capital G, N, H or W) and, where these are few, the result channels of each; or, of one block
// after the other, result channels alone (K).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "primitives/conv/conv_pass.h"
#include "primitives/winograd/winograd_problem.h"
#include "primitives/winograd/winograd_products.h"

namespace dlprim {

class WinogradPass {
public:
    // Throws std::invalid_argument when the schedule does not fit.
    WinogradPass(const WinogradProblem& problem, const Schedule& schedule);

    static std::vector<Loop> loops(const WinogradProblem& problem);

    // Of the transformed weights.
    std::int64_t transformed_floats() const {
        return problem_.out.blocks.count() * floats(filter_);
    }
    void transform_weights(const void* weights, float* transformed) const;

    // With weights that are transformed in the call, or before.
    std::int64_t scratch_bytes(bool transforms, int threads) const;
    // Reads src or diff_dst; of backward-data the weights are the transposed ones.
    void run(const ConvTensors& tensors, char* scratch, int threads) const;

    std::vector<std::string> kernel_names() const { return products_.kernel_names(); }

private:
    // One block of tiles, and a worker's part of the scratch.
    struct Task {
        const ConvTensors& tensors;
        std::int64_t group;
        TileBlock tiles;
        int threads = 1;  // at most, that share it
        float* slots = nullptr;
        float* sums = nullptr;
        float* filter = nullptr;  // one panel, where weights are transformed on the fly
    };

    // Programs for filters: one, or for the first of pairs of channels and for the second.
    using Filters = std::vector<std::shared_ptr<const RowKernel>>;

    Task task_at(const LoopNest::Ranges& ranges, const ConvTensors& tensors) const;
    void find_blocks();
    void prepare(const TileBlock::Counts& counts);
    bool on_the_fly() const { return !shares_blocks_ && boxes_ == out().groups; }
    const ChannelBlocks& in() const { return problem_.in.blocks; }
    const ChannelBlocks& out() const { return problem_.out.blocks; }
    // Blocks of tiles at a time, and threads of each, at most.
    struct Sharing {
        int blocks;
        int of_block;
    };
    Sharing sharing(int threads) const;
    std::int64_t seat_floats() const;              // of a thread of a block
    std::int64_t place_floats(int threads) const;  // of a block that so many share
    bool overlays(int threads) const { return may_overlay_ && threads == 1; }
    // Weights of a tap, pairs of them in bfloat16.
    std::int64_t tap_elements() const {
        return (problem_.dtype == DType::bf16 ? (in().block + 1) / 2 : in().block) * out().block;
    }
    std::int64_t floats(const SlotPanels& panels) const { return grid_.slots() * panels.stride; }
    Filters filters_to(const SlotPanels& panels) const;
    void transform_block(const void* weights, std::int64_t block, const Filters& filters,
                         float* transformed) const;
    void expand(const Task& task, Range lines, std::int64_t block) const;
    void compute(const Task& task, Range channels) const;
    void multiply(const Task& task, std::int64_t k) const;
    void reduce(const Task& task, std::int64_t k) const;
    void run_blocks(const ConvTensors& tensors, float* scratch, int threads) const;
    void run_block(const Task& whole, float* scratch) const;

    WinogradProblem problem_;
    Schedule schedule_;
    TileGrid grid_;
    LoopNest blocks_;    // g, n, h, w
    LoopNest channels_;  // k
    bool shares_blocks_ = true;
    // With one block of result channels, and one thread, nothing reads a slot of V again, so M is
    // one slot before V and overwrites what was just read: half the scratch, and no line of M comes
    // from afar.
    bool may_overlay_ = false;
    std::optional<TensorTiles> in_;
    std::optional<TensorTiles> out_;
    std::int64_t boxes_ = 0;
    SlotPanels slots_;   // V
    SlotPanels filter_;  // U
    SlotPanels panel_;   // U of one block of in channels
    SlotPanels sums_;    // M
    WinogradProducts products_;
    Filters filters_;        // to U
    Filters panel_filters_;  // to U of one block of in channels
};

}  // namespace dlprim
