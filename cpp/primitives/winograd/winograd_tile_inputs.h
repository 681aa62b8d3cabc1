// One tensor as Winograd convolution reads it: patches of pixels, a tile each, become slots.
#pragma once

#include <cstdint>

#include "primitives/conv/conv_layout.h"
#include "primitives/winograd/winograd_products.h"
#include "primitives/winograd/winograd_tiles.h"
#include "primitives/winograd/winograd_transform.h"

namespace dlprim {

class TileInputs {
public:
    struct Tensor {
        PatchKind kind = PatchKind::input;  // or gradient
        DType dtype = DType::f32;
        Format layout = Format::blocked;
        ChannelBlocks blocks = {};
        std::int64_t height = 0;
        std::int64_t width = 0;
        std::int64_t offset_h = 0;  // of the pixels of a tile from those of its results
        std::int64_t offset_w = 0;
    };

    TileInputs(const Tensor& tensor, int tile);

    // The tiles of a class: a block of channels, counted over all groups, to columns of the slots
    // from `slots` on.
    void expand(const void* from, const TileGrid& grid, const TileBlock& tiles, int which,
                std::int64_t block, const SlotPanels& panels, float* slots) const;

private:
    int side(bool large) const { return tile_side(tile_, large) + rim_; }

    Tensor tensor_;
    int tile_;
    int rim_;  // pixels of a tile's side beyond its results
    ActivationStrides strides_;
    ExpandFunction functions_[TileBlock::kClasses][2] = {};
};

}  // namespace dlprim
