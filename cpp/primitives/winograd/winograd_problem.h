// What the passes of a Winograd convolution work on: two tensors cut into tiles alike. Forward and
// backward-data read `in` and write `out`, with the roles of the channels exchanged, the filter
// turned and another padding; backward-weights reads both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "primitives/conv/conv_contraction.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/winograd/winograd_tiles.h"
#include "primitives/winograd/winograd_transform.h"
#include "rows/row_kernel.h"

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
    // `slot_stride`: floats from slot to slot.
    TensorTiles(const WinogradProblem& problem, const WinogradTensor& tensor,
                std::int64_t slot_stride);

    // Where tensors and the slots of a block of tiles begin. Bias and residual are of results.
    struct Operands {
        const void* pixels = nullptr;
        const float* slots = nullptr;
        const float* bias = nullptr;     // or null; as many as channels of the block
        const void* residual = nullptr;  // or null
    };

    // Some lines of a block of tiles, and a block of channels, counted over all groups. `ld`:
    // floats from tile to tile in a slot.
    void transform(const Operands& it, std::int64_t ld, const TileBlock& tiles, Range lines,
                   std::int64_t block) const;

private:
    // How tiles along an axis differ: in their results, and in the pixels that exist.
    struct Side {
        int results = 0;
        Range pixels;

        friend bool operator==(const Side&, const Side&) = default;
    };
    struct Sides {
        std::vector<Side> kinds;
        std::vector<std::size_t> of;  // each tile

        std::size_t kind(std::int64_t tile) const { return of[static_cast<std::size_t>(tile)]; }
    };

    using Kernels = std::vector<std::shared_ptr<const RowKernel>>;

    // Of results that a residual is added to: made by the first call that has one.
    struct Added {
        TileTransform transform;
        std::once_flag made;
        Kernels kernels;
    };

    Kernels kernels_of(TileTransform it) const;
    const Kernels& kernels(bool adds) const;
    Sides sides(const AxisTiles& axis, std::int64_t offset, std::int64_t extent) const;

    WinogradTensor tensor_;
    TileGrid grid_;
    std::int64_t element_;  // bytes
    ActivationStrides strides_;
    Sides rows_;
    Sides columns_;
    Kernels kernels_;
    mutable Added added_;
};

}  // namespace dlprim
