#include "graph/functions/image_samples.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

enum class Mode { nearest, linear };

constexpr std::size_t kMostTaps = 2;  // of an axis

// Pixels of an axis and their weights; -1 for what is outside.
struct Taps {
    std::array<std::int64_t, kMostTaps> places;
    std::array<float, kMostTaps> weights;
    std::size_t count;
};

struct Axis {
    std::int64_t extent = 0;
    Mode mode = Mode::linear;
};

// Of many results, the pixels that each is a sum of, side by side for all results.
class Sums {
public:
    Sums(std::int64_t results, std::int64_t taps, char* memory)
        : results_(results),
          taps_(taps),
          offsets_(reinterpret_cast<std::int64_t*>(memory)),
          weights_(reinterpret_cast<float*>(offsets_ + results * taps)) {}

    static std::int64_t bytes(std::int64_t results, std::int64_t taps) {
        return 12 * results * taps;
    }

    void set(std::int64_t result, const Taps& rows, const Taps& columns, std::int64_t width) {
        std::int64_t tap = 0;
        for (std::size_t i = 0; i < rows.count; ++i) {
            for (std::size_t j = 0; j < columns.count; ++j, ++tap) {
                const bool is_there = rows.places[i] >= 0 && columns.places[j] >= 0;
                offsets_[tap * results_ + result] =
                    is_there ? rows.places[i] * width + columns.places[j] : -1;
                weights_[tap * results_ + result] = rows.weights[i] * columns.weights[j];
            }
        }
    }

    // Of one plane; what lies outside adds nothing.
    void run(const float* plane, float* dst) const {
        std::fill_n(dst, results_, 0.0F);
        for (std::int64_t tap = 0; tap < taps_; ++tap) {
            const std::int64_t* const at = offsets_ + tap * results_;
            const float* const by = weights_ + tap * results_;
            for (std::int64_t i = 0; i < results_; ++i) {
                if (at[i] >= 0) dst[i] += by[i] * plane[at[i]];
            }
        }
    }

private:
    std::int64_t results_, taps_;
    std::int64_t* offsets_;
    float* weights_;
};

struct Images {
    std::int64_t count = 0, channels = 0, height = 0, width = 0;

    std::int64_t pixels() const { return height * width; }
};

Images images_of(const NetworkTensor& x) {
    if (x.shape.size() != 4 || x.dtype != "float32") return {};
    return {x.shape[0], x.shape[1], x.shape[2], x.shape[3]};
}

std::int64_t most_taps(Mode mode) { return mode == Mode::nearest ? 1 : 4; }

// Places of `count` pixels from one share of the extent to another, as taps; none outside of it.
Taps crop_taps(const std::array<float, 2>& ends, std::int64_t number, std::int64_t count,
               const Axis& axis) {
    const auto last = static_cast<float>(axis.extent - 1);
    float at = 0.5F * (ends[0] + ends[1]) * last;
    if (count > 1) {
        const float step = (ends[1] - ends[0]) * (last / static_cast<float>(count - 1));
        at = number == count - 1 ? ends[1] * last
                                 : ends[0] * last + static_cast<float>(number) * step;
    }
    if (!(at >= 0 && at <= last)) return {{-1, -1}, {0, 0}, 1};
    if (axis.mode == Mode::nearest) {
        return {{static_cast<std::int64_t>(std::floor(at + 0.5F))}, {1}, 1};
    }
    const auto left = static_cast<std::int64_t>(at);
    const float share = at - static_cast<float>(left);
    return {{left, std::min(left + 1, axis.extent - 1)}, {1 - share, share}, 2};
}

}  // namespace

RunOfCall crops(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 3 && call.outputs.size() == 1;
    const Images from = fits ? images_of(network.tensor(call.inputs[0])) : Images();
    const Images to = fits ? images_of(network.tensor(call.outputs[0])) : Images();
    using Shape = std::vector<std::int64_t>;
    const std::string places = fits ? network.tensor(call.inputs[2]).dtype : "";
    fits = fits && from.pixels() > 0 && from.channels == to.channels &&
           network.tensor(call.inputs[1]).dtype == "float32" &&
           network.tensor(call.inputs[1]).shape == Shape{to.count, 4} &&
           network.tensor(call.inputs[2]).shape == Shape{to.count} &&
           (places == "int32" || places == "int64");
    require_fit(fits, network, call, "(N, C, H, W), (R, 4), places (R,) and (R, C, h, w)");
    const auto mode = static_cast<Mode>(number_of(call, "mode"));
    const auto outside = static_cast<float>(number_of(call, "outside"));
    const Axis rows{.extent = from.height, .mode = mode},
        columns{.extent = from.width, .mode = mode};
    return [=](const Addresses& at) {
        const float *const x = at[call.inputs[0]], *const regions = at[call.inputs[1]];
        float* const dst = at[call.outputs[0]];
        const std::int64_t results = to.pixels(), taps = most_taps(mode);
        const WorkOf work(static_cast<double>(2 * to.count * to.channels * results * taps), 0);
        parallel_for(to.count, [&](std::int64_t region) {
            const std::int32_t* const narrow = at[call.inputs[2]];
            const std::int64_t* const wide = at[call.inputs[2]];
            const std::int64_t image = places == "int32" ? narrow[region] : wide[region];
            if (image < -from.count || image >= from.count) {
                throw std::out_of_range("image " + std::to_string(image) + " is asked for, of " +
                                        std::to_string(from.count));
            }
            const std::int64_t first = image < 0 ? image + from.count : image;
            const WorkspacePool::Lease own(WorkspacePool::lasting(),
                                           Sums::bytes(results, taps) + results);
            Sums sums(results, taps, own.data());
            char* const is_outside = own.data() + Sums::bytes(results, taps);
            const float* const ends = regions + 4 * region;
            for (std::int64_t i = 0; i < results; ++i) {
                Taps above = crop_taps({ends[0], ends[2]}, i / to.width, to.height, rows);
                Taps beside = crop_taps({ends[1], ends[3]}, i % to.width, to.width, columns);
                is_outside[i] = above.places[0] < 0 || beside.places[0] < 0 ? 1 : 0;
                if (mode == Mode::linear) above.count = beside.count = 2;
                sums.set(i, above, beside, from.width);
            }
            for (std::int64_t c = 0; c < to.channels; ++c) {
                float* const plane = dst + (region * to.channels + c) * results;
                sums.run(x + (first * to.channels + c) * from.pixels(), plane);
                for (std::int64_t i = 0; i < results; ++i) {
                    plane[i] = is_outside[i] != 0 ? outside : plane[i];
                }
            }
        });
    };
}

}  // namespace dlprim
