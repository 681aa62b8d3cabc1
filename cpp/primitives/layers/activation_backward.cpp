#include "primitives/layers/activation_backward.h"

#include <algorithm>

#include "primitives/layers/channel_panels.h"
#include "primitives/layers/pixel_programs.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// Pixels of a task: few enough for one chain of float32 additions to be accurate.
constexpr std::int64_t kPiecePixels = 256;
// Columns of the sums that are combined together, at least.
constexpr std::int64_t kFewestColumns = 4 * kLineFloats;

// Of at least one pixel.
class GradientPass {
public:
    GradientPass(const Activations& tensor, Format layout)
        : panels_(tensor, layout),
          pieces_(panels_, tensor.dtype, kPieceBytes, kPiecePixels),
          columns_(panels_.blocks * panels_.width) {}

    std::int64_t scratch_bytes() const {
        return pieces_.count() * sums_distance() * size_of(DType::f32);
    }

    void run(const ActivationBackward& problem, char* scratch) const {
        const SumCopies sums{reinterpret_cast<float*>(scratch), pieces_.count(), sums_distance()};
        PixelRows like = pieces_.rows(0, 0);
        like.saved = problem.saved;
        like.relu_mask = problem.relu_mask;
        like.out = problem.out;
        like.sums = problem.diff_bias;
        like.relu =
            problem.activation == Activation::none || problem.activation == Activation::relu;
        const PixelProgram& pass =
            PixelProgram::of(PixelPass::activation, problem.tensor.dtype, like, problem.activation);
        pieces_.for_each({0, panels_.blocks}, TaskOrder::ascending,
                         [&](std::int64_t piece, std::int64_t block) {
                             float* sum = nullptr;
                             if (problem.diff_bias != nullptr) {
                                 sum = sums.copy(piece) + block * panels_.width;
                             }
                             run_piece(problem, piece, block, pass, sum);
                         });
        if (problem.diff_bias != nullptr) combine(sums, problem.diff_bias);
    }

private:
    // Floats of a row of sums, padding channels included.
    std::int64_t sums_distance() const { return rounded_up(columns_, kLineFloats); }

    void run_piece(const ActivationBackward& problem, std::int64_t piece, std::int64_t block,
                   const PixelProgram& pass, float* sums) const {
        PixelRows part = pieces_.rows(piece, block);
        part.sums = sums;
        if (sums != nullptr) std::fill_n(sums, panels_.width, 0.0F);
        pieces_.for_images(piece, block, [&](std::int64_t bytes, std::int64_t mask_bytes) {
            part.diff_dst = static_cast<const char*>(problem.diff_dst) + bytes;
            if (problem.saved != nullptr) {
                part.saved = static_cast<const char*>(problem.saved) + bytes;
            }
            if (problem.relu_mask != nullptr) {
                part.relu_mask = problem.relu_mask + mask_bytes;
            }
            if (problem.out != nullptr) part.out = static_cast<char*>(problem.out) + bytes;
            pass(part);
        });
    }

    void combine(const SumCopies& sums, float* diff_bias) const {
        const std::int64_t few = kPieceBytes / size_of(DType::f32) / sums.count;
        const Blocks columns{columns_, std::max(few / kLineFloats * kLineFloats, kFewestColumns)};
        parallel_for(columns.count(),
                     [&](std::int64_t task) { add_as_tree(sums, columns.at(task)); });
        for (std::int64_t block = 0; block < panels_.blocks; ++block) {
            const Range channels = panels_.channels(block);
            std::copy_n(sums.first + block * panels_.width, channels.size(),
                        diff_bias + channels.begin);
        }
    }

    ChannelPanels panels_;
    PixelPieces pieces_;
    std::int64_t columns_;  // of the sums
};

bool is_empty(const Activations& tensor) {
    return tensor.images * tensor.height * tensor.width * tensor.blocks.channels == 0;
}

}  // namespace

std::int64_t activation_backward_scratch_bytes(const Activations& tensor, Format layout) {
    return is_empty(tensor) ? 0 : GradientPass(tensor, layout).scratch_bytes();
}

void activation_backward(const ActivationBackward& problem, char* scratch) {
    if (is_empty(problem.tensor)) {
        if (problem.diff_bias != nullptr) {
            std::fill_n(problem.diff_bias, problem.tensor.blocks.total(), 0.0F);
        }
        return;
    }
    ActivationBackward it = problem;
    const bool gated =
        it.activation != Activation::none && (it.saved != nullptr || it.relu_mask != nullptr);
    if (!gated) {
        it.saved = nullptr;
        it.relu_mask = nullptr;
        it.activation = Activation::none;
        if (it.out == it.diff_dst) it.out = nullptr;
    }
    if (it.out == nullptr && it.diff_bias == nullptr) return;
    GradientPass(it.tensor, it.layout).run(it, scratch);
}

}  // namespace dlprim
