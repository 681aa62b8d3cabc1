#include "primitives/winograd/winograd_problem.h"

#include <algorithm>
#include <array>
#include <utility>

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

TensorTiles::TensorTiles(const WinogradProblem& problem, const WinogradTensor& tensor,
                         std::int64_t slot_stride)
    : tensor_(tensor),
      grid_(problem.grid()),
      element_(size_of(problem.dtype)),
      strides_(activation_strides(problem.layout, tensor.blocks, tensor.height, tensor.width)),
      rows_(sides(grid_.rows, tensor.offset_h, tensor.height)),
      columns_(sides(grid_.columns, tensor.offset_w, tensor.width)) {
    const TileTransform plain{.kind = tensor.kind,
                              .dtype = problem.dtype,
                              .pixel = strides_.pixel,
                              .slot_stride = slot_stride,
                              .relu = problem.relu && tensor.kind == TileKind::result};
    kernels_ = kernels_of(plain);
    added_.transform = plain;
    added_.transform.residual = true;
}

TensorTiles::Kernels TensorTiles::kernels_of(TileTransform it) const {
    Kernels made;
    for (const Side& high : rows_.kinds) {
        for (const Side& wide : columns_.kinds) {
            it.tile_h = high.results;
            it.tile_w = wide.results;
            it.rows = high.pixels;
            it.columns = wide.pixels;
            made.push_back(tile_kernel(it));
        }
    }
    return made;
}

const TensorTiles::Kernels& TensorTiles::kernels(bool adds) const {
    if (!adds) return kernels_;
    std::call_once(added_.made, [&] { added_.kernels = kernels_of(added_.transform); });
    return added_.kernels;
}

TensorTiles::Sides TensorTiles::sides(const AxisTiles& axis, std::int64_t offset,
                                      std::int64_t extent) const {
    Sides sides;
    const std::int64_t rim = tensor_.kind == TileKind::input ? kWinogradTaps - 1 : 0;
    for (std::int64_t tile = 0; tile < axis.count(); ++tile) {
        const int results = axis.size(tile);
        const Side side{results, existing(axis.begin(tile) + offset, results + rim, extent)};
        const auto known = std::find(sides.kinds.begin(), sides.kinds.end(), side);
        sides.of.push_back(static_cast<std::size_t>(known - sides.kinds.begin()));
        if (known == sides.kinds.end()) sides.kinds.push_back(side);
    }
    return sides;
}

// One call for each run of tiles of a kind.
void TensorTiles::transform(const Operands& it, std::int64_t ld, const TileBlock& tiles,
                            Range lines, std::int64_t block) const {
    static constexpr std::array<float, 64> kNoBias{};
    const std::int64_t inner = block % tensor_.blocks.per_group();
    const std::int64_t first =
        block / tensor_.blocks.per_group() * strides_.group + inner * strides_.block;
    const Kernels& kernels = this->kernels(it.residual != nullptr);
    RowArgs args;
    args.columns = tensor_.blocks.in_block(inner);
    tiles.for_each(lines, [&](std::int64_t t, std::int64_t n, std::int64_t h, Range columns) {
        const std::int64_t y = grid_.rows.begin(h) + tensor_.offset_h;
        while (columns.size() > 0) {
            const std::int64_t w = columns.begin;
            const std::int64_t x = grid_.columns.begin(w) + tensor_.offset_w;
            const std::int64_t place =
                (first + n * strides_.image + y * strides_.row + x * strides_.pixel) * element_;
            const std::int64_t step = grid_.columns.size(w) * strides_.pixel * element_;
            const Range rows = rows_.kinds[rows_.kind(h)].pixels;
            auto* next = args.operands.begin();
            const auto add_rows = [&](const void* tensor) {
                auto* const pixels = const_cast<char*>(static_cast<const char*>(tensor)) + place;
                for (auto row = rows.begin; row < rows.end; ++row) {
                    *next++ = {pixels + row * strides_.row * element_, step};
                }
            };
            if (tensor_.kind != TileKind::result) add_rows(it.pixels);
            *next++ = {const_cast<float*>(it.slots) + t * ld, ld * size_of(DType::f32)};
            if (tensor_.kind == TileKind::result) {
                if (it.residual != nullptr) add_rows(it.residual);
                *next++ = {const_cast<float*>(it.bias == nullptr ? kNoBias.data() : it.bias), 0};
                add_rows(it.pixels);
            }
            const std::size_t kind = columns_.kind(w);
            while (columns.size() > 0 && columns_.kind(columns.begin) == kind) ++columns.begin;
            args.rows = columns.begin - w;
            t += args.rows;
            (*kernels[rows_.kind(h) * columns_.kinds.size() + kind])(args);
        }
    });
}

}  // namespace dlprim
