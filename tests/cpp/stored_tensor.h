// An activation or depthwise weights as the library stores them, between pages that fault, where
// tests read and write elements by their place in the plain tensor. Written without the packing
// functions: whoever confuses the layout does not do so twice in the same way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "jit/dtype.h"
#include "primitives/conv/conv_layout.h"
#include "primitives/reorder/pack.h"
#include "typed_problem.h"

namespace dlprim::testing {

using Plain = std::vector<float>;

// A tensor of channels and pixels in plain order, (images, channels, height, width), and its place
// in memory between pages that fault. Weights are one image per block of their channels.
struct Extents {
    std::int64_t images;
    std::int64_t channels;
    std::int64_t height;
    std::int64_t width;

    std::int64_t size() const { return images * channels * height * width; }
};

class StoredTensor {
public:
    StoredTensor(const Extents& extents, DType dtype, Format layout, Fence fence)
        : extents_(extents),
          dtype_(dtype),
          block_(layout == Format::nhwc ? extents.channels
                                        : channel_blocks(1, extents.channels).block),
          blocks_((extents.channels + block_ - 1) / block_),
          memory_(
              extents.images * blocks_ * block_ * extents.height * extents.width * size_of(dtype),
              fence) {}

    void fill(std::byte value) {
        std::fill_n(memory_.data(), static_cast<std::size_t>(memory_.size()), value);
    }

    // Channels that do not exist become NaN.
    void write(const Plain& plain) {
        fill(std::byte{0xff});
        for_elements([&](std::int64_t index, std::byte* element) {
            std::uint16_t half = 0;
            if (dtype_ == DType::f32) {
                std::memcpy(element, &plain[static_cast<std::size_t>(index)], sizeof(float));
            } else {
                round_to_bf16(&plain[static_cast<std::size_t>(index)], &half, 1);
                std::memcpy(element, &half, sizeof half);
            }
        });
    }

    Plain read() const {
        Plain plain(static_cast<std::size_t>(extents_.size()));
        for_elements([&](std::int64_t index, const std::byte* element) {
            std::uint16_t half = 0;
            if (dtype_ == DType::f32) {
                std::memcpy(&plain[static_cast<std::size_t>(index)], element, sizeof(float));
            } else {
                std::memcpy(&half, element, sizeof half);
                widen_to_f32(&half, &plain[static_cast<std::size_t>(index)], 1);
            }
        });
        return plain;
    }

    // Whether what belongs to no channel is as fill() left it.
    bool padding_is(std::byte value) {
        for_elements([&](std::int64_t, std::byte* element) {
            std::fill_n(element, size_of(dtype_), value);
        });
        return std::all_of(memory_.data(), memory_.data() + memory_.size(),
                           [&](std::byte byte) { return byte == value; });
    }

    void* data() const { return memory_.data(); }

private:
    template <class Body>
    void for_elements(const Body& body) const {
        const std::int64_t pixels = extents_.height * extents_.width;
        for (std::int64_t i = 0; i < extents_.size(); ++i) {
            const std::int64_t n = i / pixels / extents_.channels;
            const std::int64_t c = i / pixels % extents_.channels;
            const std::int64_t offset =
                ((n * blocks_ + c / block_) * pixels + i % pixels) * block_ + c % block_;
            body(i, memory_.data() + offset * size_of(dtype_));
        }
    }

    Extents extents_;
    DType dtype_;
    std::int64_t block_;
    std::int64_t blocks_;
    GuardedBytes memory_;
};

}  // namespace dlprim::testing
