#include "primitives/winograd/winograd_tile_inputs.h"

namespace dlprim {

TileInputs::TileInputs(const Tensor& tensor, int tile)
    : tensor_(tensor),
      tile_(tile),
      rim_(tensor.kind == PatchKind::input ? 2 : 0),
      strides_(activation_strides(tensor.layout, tensor.blocks, tensor.height, tensor.width)) {
    for (int which = 0; which < TileBlock::kClasses; ++which) {
        for (const bool inside : {false, true}) {
            functions_[which][inside ? 1 : 0] =
                expand_function(usable_isa(), tensor.kind, tensor.dtype,
                                tile_side(tile, TileBlock::is_large_h(which)),
                                tile_side(tile, TileBlock::is_large_w(which)), inside);
        }
    }
}

void TileInputs::expand(const void* from, const TileGrid& grid, const TileBlock& tiles, int which,
                        std::int64_t block, const SlotPanels& panels, float* slots) const {
    const std::int64_t group = block / tensor_.blocks.per_group();
    const std::int64_t inner = block % tensor_.blocks.per_group();
    const std::int64_t first = group * strides_.group + inner * strides_.block;
    const std::int64_t element = size_of(tensor_.dtype);
    const int high = side(TileBlock::is_large_h(which));
    const int wide = side(TileBlock::is_large_w(which));
    TilePatch patch{.row = strides_.row,
                    .pixel = strides_.pixel,
                    .channels = tensor_.blocks.in_block(inner),
                    .slot_stride = panels.stride};
    tiles.for_each(which, [&](std::int64_t t, std::int64_t n, std::int64_t h, std::int64_t w) {
        const std::int64_t y = grid.rows.begin(h) + tensor_.offset_h;
        const std::int64_t x = grid.columns.begin(w) + tensor_.offset_w;
        const Range rows = existing(y, high, tensor_.height);
        const Range columns = existing(x, wide, tensor_.width);
        const std::int64_t offset =
            first + n * strides_.image + y * strides_.row + x * strides_.pixel;
        patch.first = static_cast<const char*>(from) + offset * element;
        patch.rows_begin = static_cast<int>(rows.begin);
        patch.rows_end = static_cast<int>(rows.end);
        patch.columns_begin = static_cast<int>(columns.begin);
        patch.columns_end = static_cast<int>(columns.end);
        patch.slots = slots + t * panels.ld;
        const bool inside = rows.size() == high && columns.size() == wide;
        functions_[which][inside ? 1 : 0](patch);
    });
}

}  // namespace dlprim
