// What the passes of a Winograd convolution work on: two tensors cut into tiles alike. Forward and
// backward-data read `in` and write `out`, with the roles of the channels exchanged, the filter
// turned and another padding; backward-weights reads both.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_contraction.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/winograd/winograd_tiles.h"
#include "primitives/winograd/winograd_transform.h"

namespace dlprim {

struct WinogradTensor {
    TileKind kind = TileKind::input;  // or gradient, or result
    ChannelBlocks blocks = {};
    std::int64_t height = 0;
    std::int64_t width = 0;
    std::int64_t offset_h = 0;  // of the pixels of a tile from those of its results
    std::int64_t offset_w = 0;
};

struct WinogradProblem {
    PassKind pass = PassKind::forward;
    std::int64_t images = 0;
    WinogradTensor in;
    WinogradTensor out;
    DType dtype = DType::f32;
    Format layout = Format::blocked;
    int tile = 4;  // or 2
    bool relu = false;

    TileGrid grid() const;
};

WinogradProblem winograd_problem(const ConvProblem& problem, PassKind pass, int tile);

// The tiles of one tensor: pixels become slots, or come from slots.
class TensorTiles {
public:
    TensorTiles(const WinogradProblem& problem, const WinogradTensor& tensor);

    // The tiles of a class, and a block of channels, counted over all groups. `it` has src, dst and
    // residual where tensors begin, and the slots of the block; what else tiles share is its
    // slot_stride, bias and relu. `ld`: floats from tile to tile in a slot.
    void transform(TileTransform it, std::int64_t ld, const TileBlock& tiles, int which,
                   std::int64_t block) const;

private:
    WinogradTensor tensor_;
    TileGrid grid_;
    DType dtype_;
    int tile_;
    int rim_;  // pixels of a tile's side beyond its results
    ActivationStrides strides_;
    TileFunction functions_[TileBlock::kClasses][2] = {};  // with pixels outside, without
};

}  // namespace dlprim
