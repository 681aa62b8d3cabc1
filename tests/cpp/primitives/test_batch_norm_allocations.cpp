// Batch normalisation takes scratch in its first calls and then nothing, whatever sizes take turns.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "allocation_count.h"
#include "primitives/layers/batch_norm.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::allocations;

// A layer with operands and results of zeros.
class Layer {
public:
    Layer(std::int64_t images, std::int64_t channels, std::int64_t side)
        : norm_{.tensor = {.images = images,
                           .height = side,
                           .width = side,
                           .blocks = channel_blocks(1, channels)},
                .layout = Format::nhwc,
                .relu = true,
                .epsilon = 1e-5F},
          tensor_(static_cast<std::size_t>(images * channels * side * side)),
          out_(tensor_),
          by_channel_(static_cast<std::size_t>(5 * channels)),
          channels_(channels) {}

    void run() {
        batch_norm_forward(norm_, {.src = tensor_.data(),
                                   .dst = out_.data(),
                                   .mean = row(0),
                                   .inverse_std = row(1),
                                   .variance = row(2)});
        batch_norm_backward(norm_, {.diff_dst = tensor_.data(),
                                    .src = tensor_.data(),
                                    .mean = row(0),
                                    .inverse_std = row(1),
                                    .diff_src = out_.data(),
                                    .diff_weight = row(3),
                                    .diff_bias = row(4)});
    }

private:
    float* row(std::int64_t index) { return by_channel_.data() + index * channels_; }

    BatchNorm norm_;
    std::vector<float> tensor_, out_, by_channel_;
    std::int64_t channels_;
};

TEST_CASE("batch normalisation allocates in no later round of a network's layers") {
    const int before = num_threads();
    for (const int threads : {1, 3}) {
        set_num_threads(threads);
        std::vector<Layer> layers;
        for (const std::int64_t channels : {64, 24, 256, 7}) {
            layers.emplace_back(3, channels, 512 / channels);
        }
        const auto round = [&] {
            for (Layer& layer : layers) layer.run();
        };
        round();
        round();
        const std::int64_t calls = allocations().calls;
        round();
        CHECK(allocations().calls == calls);
    }
    set_num_threads(before);
}

}  // namespace
}  // namespace dlprim
