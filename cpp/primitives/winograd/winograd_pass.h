// Winograd convolution of 3x3 filters with stride 1: per block of tiles the inputs are transformed
// into slots, every slot is one product of matrices (the one driver, contraction.h), and the
// products are transformed to results while they are hot. It needs up to 4 times fewer
// multiplications than the direct algorithm. Forward and backward-data are the same pass with
// the roles of the channels exchanged, the filter turned and another padding.
//   V [slot][tile][in channel]   U [out block][slot][in channel][out]   M [slot][tile][out]
// Source: Lavin and Gray, arXiv 1509.09308; interpolation points: docs/winograd.md.
//
// Which tiles form a block and in which order blocks are taken is a Schedule over g groups, n
// images, h and w tile rows and columns and k blocks of result channels. Blocks of tiles are
// what the innermost levels of n, h and w leave; k comes last. Threads share blocks of tiles
// (a capital G, N, H or W) or, of one block after the other, result channels (K).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "primitives/conv/conv_layout.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/winograd/winograd_products.h"
#include "primitives/winograd/winograd_tile_inputs.h"
#include "primitives/winograd/winograd_tiles.h"
#include "primitives/winograd/winograd_transform.h"

namespace dlprim {

// A correlation with stride 1: result (p, q) reads inputs from (p + offset_h, q + offset_w) on.
struct WinogradProblem {
    std::int64_t images = 0;
    ChannelBlocks in;
    ChannelBlocks out;
    std::int64_t in_height = 0;
    std::int64_t in_width = 0;
    std::int64_t out_height = 0;
    std::int64_t out_width = 0;
    std::int64_t offset_h = 0;
    std::int64_t offset_w = 0;
    bool turned = false;  // the filter is read from its last tap to its first
    DType dtype = DType::f32;
    Format layout = Format::blocked;
    int tile = 4;  // or 2
};

// Forward or backward-data, whose weights are the transposed ones.
WinogradProblem winograd_problem(const ConvProblem& problem, PassKind pass, int tile);

TileGrid tile_grid(const WinogradProblem& problem);

struct WinogradTensors {
    const void* src = nullptr;
    const float* transformed = nullptr;  // weights; or
    const void* weights = nullptr;       // packed ones, which are then transformed in the call
    const float* bias = nullptr;
    const void* residual = nullptr;
    bool relu = false;
    void* dst = nullptr;
};

class WinogradPass {
public:
    // Throws std::invalid_argument when the schedule does not fit.
    WinogradPass(const WinogradProblem& problem, const Schedule& schedule);

    static std::vector<Loop> loops(const WinogradProblem& problem);

    const Schedule& schedule() const { return schedule_; }

    // Of the transformed weights.
    std::int64_t transformed_floats() const;
    void transform_weights(const void* weights, float* transformed) const;

    // With weights that are transformed in the call, or before.
    std::int64_t scratch_bytes(bool transforms, int threads) const;
    void run(const WinogradTensors& tensors, char* scratch, int threads) const;

    std::vector<std::string> kernel_names() const { return products_.kernel_names(); }

private:
    struct Box {
        std::int64_t group = 0;
        Range images;
        Range rows;
        Range columns;
    };
    // A worker's part of the scratch.
    struct Place {
        float* slots = nullptr;
        float* sums = nullptr;
        float* filter = nullptr;  // one panel, where weights are transformed on the fly
    };

    Box box_at(const LoopNest::Ranges& ranges) const;
    void find_blocks();
    void prepare(const TileBlock::Counts& counts);
    void choose_functions();
    std::int64_t expand_pieces() const { return problem_.in.per_group() * TileBlock::kClasses; }
    bool on_the_fly() const { return !shares_blocks_ && boxes_ == grid_groups(); }
    std::int64_t place_floats() const;
    std::int64_t grid_groups() const { return problem_.out.groups; }
    std::int64_t floats(const SlotPanels& panels) const { return grid_.slots() * panels.stride; }
    std::int64_t out_columns(std::int64_t out_block) const;
    void transform_block(const void* weights, std::int64_t out_block, Range channels,
                         std::int64_t slot_stride, float* transformed) const;
    void expand(const void* src, const Box& box, const TileBlock& tiles, std::int64_t piece,
                float* slots) const;
    void compute(const WinogradTensors& tensors, const Box& box, const TileBlock& tiles,
                 Range tasks, const Place& place) const;
    void multiply(const WinogradTensors& tensors, std::int64_t out_block, const TileBlock& tiles,
                  const Place& place) const;
    void reduce(const WinogradTensors& tensors, const Box& box, const TileBlock& tiles,
                std::int64_t out_block, const float* sums) const;
    void run_sharing_blocks(const WinogradTensors& tensors, float* scratch, int threads) const;
    void run_sharing_channels(const WinogradTensors& tensors, float* scratch, int threads) const;

    WinogradProblem problem_;
    Schedule schedule_;
    TileGrid grid_;
    LoopNest blocks_;    // g, n, h, w
    LoopNest channels_;  // k
    bool shares_blocks_ = true;
    // With one block of result channels nothing reads a slot of V again, so M is one slot before V
    // and overwrites what was just read: half the scratch, and no line of M comes from afar.
    bool overlays_ = false;
    TileInputs in_;
    ActivationStrides out_;
    std::int64_t boxes_ = 0;
    SlotPanels slots_;   // V
    SlotPanels filter_;  // U
    SlotPanels panel_;   // U of one block of in channels
    SlotPanels sums_;    // M
    WinogradProducts products_;
    ExpandFunction filter_functions_[2] = {};  // of each other channel in pairs
    ReduceFunction reduce_[TileBlock::kClasses] = {};
};

}  // namespace dlprim
