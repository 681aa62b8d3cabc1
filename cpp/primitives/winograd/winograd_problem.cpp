#include "primitives/winograd/winograd_problem.h"

namespace dlprim {

WinogradProblem winograd_problem(const ConvProblem& problem, PassKind pass, int tile) {
    const ConvShape& shape = problem.shape;
    WinogradProblem it{.pass = pass,
                       .images = shape.N,
                       .in = {TileKind::input, src_blocks(shape), shape.H, shape.W, -shape.pad_top,
                              -shape.pad_left},
                       .out = {TileKind::result, dst_blocks(shape), shape.P(), shape.Q()},
                       .dtype = problem.dtype,
                       .layout = problem.layout,
                       .tile = tile};
    if (pass == PassKind::backward_weights) it.out.kind = TileKind::gradient;
    if (pass == PassKind::backward_data) {
        it.in = {TileKind::input,
                 dst_blocks(shape),
                 shape.P(),
                 shape.Q(),
                 shape.pad_top - (kWinogradTaps - 1),
                 shape.pad_left - (kWinogradTaps - 1)};
        it.out = {TileKind::result, src_blocks(shape), shape.H, shape.W};
    }
    return it;
}

TileGrid WinogradProblem::grid() const {
    return {images, axis_tiles(out.height, tile), axis_tiles(out.width, tile)};
}

TensorTiles::TensorTiles(const WinogradProblem& problem, const WinogradTensor& tensor)
    : tensor_(tensor),
      grid_(problem.grid()),
      dtype_(problem.dtype),
      tile_(problem.tile),
      rim_(tensor.kind == TileKind::input ? kWinogradTaps - 1 : 0),
      strides_(activation_strides(problem.layout, tensor.blocks, tensor.height, tensor.width)) {
    for (int which = 0; which < TileBlock::kClasses; ++which) {
        for (const bool inside : {false, true}) {
            functions_[which][inside ? 1 : 0] = tile_function(
                usable_isa(), tensor.kind, dtype_, tile_side(tile_, TileBlock::is_large_h(which)),
                tile_side(tile_, TileBlock::is_large_w(which)), inside);
        }
    }
}

void TensorTiles::transform(TileTransform it, std::int64_t ld, const TileBlock& tiles, int which,
                            std::int64_t block) const {
    const bool to_slots = tensor_.kind != TileKind::result;
    const auto* const src = static_cast<const char*>(it.src);
    auto* const dst = static_cast<char*>(it.dst);
    const auto* const residual = static_cast<const char*>(it.residual);
    const std::int64_t inner = block % tensor_.blocks.per_group();
    const std::int64_t first =
        block / tensor_.blocks.per_group() * strides_.group + inner * strides_.block;
    const std::int64_t element = size_of(dtype_);
    const int high = tile_side(tile_, TileBlock::is_large_h(which)) + rim_;
    const int wide = tile_side(tile_, TileBlock::is_large_w(which)) + rim_;
    it.row = strides_.row;
    it.pixel = strides_.pixel;
    it.channels = tensor_.blocks.in_block(inner);
    tiles.for_each(which, [&](std::int64_t t, std::int64_t n, std::int64_t h, std::int64_t w) {
        const std::int64_t y = grid_.rows.begin(h) + tensor_.offset_h;
        const std::int64_t x = grid_.columns.begin(w) + tensor_.offset_w;
        const std::int64_t pixels =
            (first + n * strides_.image + y * strides_.row + x * strides_.pixel) * element;
        const std::int64_t slots = t * ld * size_of(DType::f32);
        it.src = src + (to_slots ? pixels : slots);
        it.dst = dst + (to_slots ? slots : pixels);
        if (residual != nullptr) it.residual = residual + pixels;
        it.rows = existing(y, high, tensor_.height);
        it.columns = existing(x, wide, tensor_.width);
        const bool inside = it.rows.size() == high && it.columns.size() == wide;
        functions_[which][inside ? 1 : 0](it);
    });
}

}  // namespace dlprim
