#include "primitives/layers/relu_backward.h"

#include <algorithm>
#include <cstdint>

#include "jit/dtype.h"
#include "jit/isa.h"
#include "primitives/layers/channel_panels.h"
#include "primitives/layers/relu_backward_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// What a task reads: see pack.cpp.
constexpr std::int64_t kTaskBytes = 128 * 1024;
// Pixels of a task: few enough for one chain of float32 additions to be accurate.
constexpr std::int64_t kMostPixels = 256;
constexpr std::int64_t kLineFloats = 16;
// Columns of the sums that are combined together, at least.
constexpr std::int64_t kFewestColumns = 4 * kLineFloats;

// Floats of a row of sums, padding channels included, up to a whole number of cache lines.
std::int64_t sums_row(const ChannelPanels& panels) {
    return Blocks{panels.blocks * panels.width, kLineFloats}.count() * kLineFloats;
}

class ReluPass {
public:
    // Of at least one pixel.
    ReluPass(const ReluBackward& problem, char* scratch)
        : problem_(problem),
          panels_(problem.tensor, problem.layout),
          pieces_(panels_, problem.tensor.dtype, kTaskBytes, kMostPixels),
          pass_(relu_pixels_function(usable_isa(), problem.tensor.dtype)),
          columns_(panels_.blocks * panels_.width),
          sums_distance_(sums_row(panels_)),
          sums_(reinterpret_cast<float*>(scratch)) {
        const bool gated = problem.dst != nullptr || problem.relu_mask != nullptr;
        if (!gated && problem.out == problem.diff_dst) problem_.out = nullptr;
    }

    void run() const {
        if (problem_.out == nullptr && problem_.diff_bias == nullptr) return;
        // In the order of the memory: images, blocks, parts of an image.
        const std::int64_t parts = pieces_.parts_of_image();
        parallel_for(pieces_.count() * panels_.blocks, [&](std::int64_t task) {
            const std::int64_t block = task / parts % panels_.blocks;
            run_piece(task / parts / panels_.blocks * parts + task % parts, block);
        });
        if (problem_.diff_bias != nullptr) combine_sums();
    }

private:
    void run_piece(std::int64_t piece, std::int64_t block) const {
        const std::int64_t mask_width = (panels_.width + 7) / 8;
        const Range pixels = pieces_.pixels(piece);
        ReluPixels part{.pixels = pixels.size(),
                        .channels = panels_.channels(block).size(),
                        .distance = panels_.width,
                        .mask_distance = mask_width};
        if (problem_.diff_bias != nullptr) {
            part.sums = sums_ + piece * sums_distance_ + block * panels_.width;
            std::fill_n(part.sums, panels_.width, 0.0F);
        }
        const Range images = pieces_.images(piece);
        for (std::int64_t image = images.begin; image < images.end; ++image) {
            const std::int64_t pixel =
                (image * panels_.blocks + block) * panels_.pixels + pixels.begin;
            const std::int64_t bytes = pixel * panels_.width * size_of(problem_.tensor.dtype);
            part.diff_dst = static_cast<const char*>(problem_.diff_dst) + bytes;
            if (problem_.dst != nullptr) part.dst = static_cast<const char*>(problem_.dst) + bytes;
            if (problem_.relu_mask != nullptr) {
                part.relu_mask = problem_.relu_mask + pixel * mask_width;
            }
            if (problem_.out != nullptr) part.out = static_cast<char*>(problem_.out) + bytes;
            pass_(part);
        }
    }

    // A row of sums for every piece, added up as a tree: the error grows with its height only.
    void combine_sums() const {
        const std::int64_t rows = pieces_.count();
        const std::int64_t few = kTaskBytes / size_of(DType::f32) / rows;
        const Blocks columns{columns_, std::max(few / kLineFloats * kLineFloats, kFewestColumns)};
        parallel_for(columns.count(), [&](std::int64_t task) {
            const Range range = columns.at(task);
            for (std::int64_t step = 1; step < rows; step *= 2) {
                for (std::int64_t row = 0; row + step < rows; row += 2 * step) {
                    float* const to = sums_ + row * sums_distance_;
                    const float* const from = to + step * sums_distance_;
                    for (std::int64_t i = range.begin; i < range.end; ++i) to[i] += from[i];
                }
            }
        });
        for (std::int64_t block = 0; block < panels_.blocks; ++block) {
            const Range channels = panels_.channels(block);
            std::copy_n(sums_ + block * panels_.width, channels.size(),
                        problem_.diff_bias + channels.begin);
        }
    }

    ReluBackward problem_;
    ChannelPanels panels_;
    PixelPieces pieces_;
    ReluPixelsFunction pass_;
    std::int64_t columns_;  // of the sums, padding channels included
    std::int64_t sums_distance_;
    float* sums_;
};

}  // namespace

std::int64_t relu_backward_scratch_bytes(const Activations& tensor, Format layout) {
    if (tensor.images * tensor.height * tensor.width == 0) return 0;
    const ChannelPanels panels(tensor, layout);
    const PixelPieces pieces(panels, tensor.dtype, kTaskBytes, kMostPixels);
    return pieces.count() * sums_row(panels) * size_of(DType::f32);
}

void relu_backward(const ReluBackward& problem, char* scratch) {
    const Activations& tensor = problem.tensor;
    if (tensor.images * tensor.height * tensor.width > 0) {
        ReluPass(problem, scratch).run();
    } else if (problem.diff_bias != nullptr) {
        std::fill_n(problem.diff_bias, tensor.blocks.total(), 0.0F);
    }
}

}  // namespace dlprim
