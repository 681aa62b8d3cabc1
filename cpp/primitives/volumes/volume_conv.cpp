#include "primitives/volumes/volume_conv.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "primitives/nest/scheduled_pass.h"
#include "primitives/statements/row_statement.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"
#include "primitives/volumes/correlation.h"
#include "primitives/volumes/filter_gradient.h"
#include "primitives/volumes/sliced_cost.h"

namespace dlprim {
namespace {

// Bytes of the images that are worked on at a time.
constexpr std::int64_t kPortion = std::int64_t{4} << 20;

VolumeShape with_images(VolumeShape shape, std::int64_t images) {
    shape.N = images;
    return shape;
}

double bytes_of(const VolumeConvSpec& spec) {
    const VolumeShape& shape = spec.shape;
    const std::int64_t elements =
        shape.N * (shape.C * shape.elements() + shape.K * shape.results()) +
        shape.K * shape.group_C() * shape.taps();
    return static_cast<double>(elements * size_of(spec.dtype));
}

// How much longer products take than expected, and those that read what is a stride apart.
constexpr double kLonger = 1.5;
constexpr double kLongerOfStrides = 2.2;

// Images in portions that differ by one at most.
struct Portions {
    explicit Portions(const VolumeConvSpec& spec) : images(spec.shape.N) {
        const VolumeShape& shape = spec.shape;
        src_image = shape.C * shape.elements() * size_of(spec.dtype);
        dst_image = shape.K * shape.results() * size_of(spec.dtype);
        count = std::clamp<std::int64_t>(images * (src_image + dst_image) / kPortion, 1, images);
    }

    std::int64_t most() const { return chunk(images, count, 0).size(); }
    bool differ() const { return images % count != 0; }
    template <class Body>
    void for_each(const Body& body) const {
        for (std::int64_t i = 0; i < count; ++i) body(chunk(images, count, i));
    }

    std::int64_t images;
    std::int64_t count;
    std::int64_t src_image;  // bytes
    std::int64_t dst_image;
};

// What is made of a portion, for the sizes that there are.
template <class Of>
class Sized {
public:
    template <class Make>
    Sized(const Portions& portions, const Make& make) : most_(portions.most()) {
        larger_ = make(most_);
        if (portions.differ()) smaller_ = make(most_ - 1);
    }

    double cycles(const Portions& portions) const {
        return static_cast<double>(portions.count) * larger_->cycles();
    }
    const Of& of(Range images) const { return images.size() == most_ ? *larger_ : *smaller_; }

private:
    std::int64_t most_;
    std::unique_ptr<const Of> larger_;
    std::unique_ptr<const Of> smaller_ = {};
};

VolumeStrides plain_strides(const VolumeShape& shape, std::int64_t channels,
                            const VolumeExtents& extents) {
    return strides_of({shape.N, shape.groups, channels, extents}, VolumeOrder::plain);
}

// Results that are a stride apart along an axis and see the same taps, from the last one to the
// first.
struct Phase {
    std::int64_t first = 0;  // result
    std::int64_t last_tap = 0;
    std::int64_t every = 1;  // tap
    VolumeAxis axis = {};    // of what is read, with those taps
};

std::vector<Phase> phases_of(const VolumeAxis& axis) {
    const std::int64_t common = std::gcd(axis.step, axis.spread);
    std::vector<Phase> phases;
    for (std::int64_t rest = 0; rest < std::min(axis.step, axis.extent); ++rest) {
        Phase made{.first = rest, .every = axis.step / common};
        made.axis = {.extent = axis.results,
                     .taps = 0,
                     .spread = axis.spread / common,
                     .results = (axis.extent - rest - 1) / axis.step + 1};
        for (std::int64_t tap = 0; tap < axis.taps; ++tap) {
            const std::int64_t distance = rest + axis.before - tap * axis.spread;
            if (distance % axis.step != 0) continue;
            ++made.axis.taps;
            made.last_tap = tap;
            made.axis.before = -(distance / axis.step);
        }
        phases.push_back(made);
    }
    return phases;
}

// The filters of some phases with channels exchanged and taps from the last to the first.
template <class Element>
void turn_filters(const VolumeShape& shape, const std::array<Phase, kVolumeAxes>& phases,
                  const Element* weights, Element* to) {
    const std::int64_t C = shape.group_C(), K = shape.group_K(), taps = shape.taps();
    const std::int64_t T = phases[0].axis.taps, R = phases[1].axis.taps, S = phases[2].axis.taps;
    const auto tap_of = [](const Phase& phase, std::int64_t tap) {
        return phase.last_tap - tap * phase.every;
    };
    parallel_for(shape.groups * C, [&](std::int64_t task) {
        const std::int64_t g = task / C, c = task % C;
        Element* next = to + task * K * T * R * S;
        for (std::int64_t k = 0; k < K; ++k) {
            const Element* const filter = weights + ((g * K + k) * C + c) * taps;
            for (std::int64_t t = 0; t < T; ++t) {
                for (std::int64_t r = 0; r < R; ++r) {
                    const std::int64_t row =
                        tap_of(phases[0], t) * shape.axes[1].taps + tap_of(phases[1], r);
                    for (std::int64_t s = 0; s < S; ++s) {
                        *next++ = filter[row * shape.axes[2].taps + tap_of(phases[2], s)];
                    }
                }
            }
        }
    });
}

// One of them for each remainder of the strides.
struct PhaseOfAll {
    std::array<Phase, kVolumeAxes> phases;
    std::int64_t first = 0;  // bytes of diff_src
    std::int64_t filter_bytes = 0;
    std::optional<Sized<CorrelationRun>> run = {};  // none: zeros
};

}  // namespace

class VolumeConv::Forward {
public:
    explicit Forward(const VolumeConvSpec& spec)
        : portions_(spec), runs_(portions_, [&](std::int64_t images) {
              const VolumeShape shape = with_images(spec.shape, images);
              VolumeExtents results;
              for (std::size_t i = 0; i < kVolumeAxes; ++i) results[i] = shape.axes[i].results;
              return std::make_unique<const CorrelationRun>(
                  Correlation{.dtype = spec.dtype,
                              .shape = shape,
                              .to = plain_strides(shape, shape.group_K(), results),
                              .bias = spec.bias});
          }) {}

    void run(const char* src, const void* weights, const float* bias, char* dst) const {
        portions_.for_each([&](Range images) {
            runs_.of(images).run(src + images.begin * portions_.src_image, weights, bias,
                                 dst + images.begin * portions_.dst_image);
        });
    }

    double cycles() const { return runs_.cycles(portions_); }

private:
    Portions portions_;
    Sized<CorrelationRun> runs_;
};

class VolumeConv::Data {
public:
    explicit Data(const VolumeConvSpec& spec) : spec_(spec), portions_(spec) {
        const auto& axes = spec.shape.axes;
        for (const Phase& t : phases_of(axes[0])) {
            for (const Phase& r : phases_of(axes[1])) {
                for (const Phase& s : phases_of(axes[2])) add({t, r, s});
            }
        }
    }

    double cycles() const {
        double sum = 0;
        for (const PhaseOfAll& it : phases_) sum += it.run ? it.run->cycles(portions_) : 0;
        return sum;
    }

    void run(const char* diff_dst, const void* weights, char* diff_src) const {
        std::int64_t most = 0;
        for (const PhaseOfAll& it : phases_) most = std::max(most, it.filter_bytes);
        const bool has_zeros = std::any_of(phases_.begin(), phases_.end(),
                                           [](const PhaseOfAll& it) { return !it.run; });
        if (has_zeros) {
            std::memset(diff_src, 0,
                        static_cast<std::size_t>(portions_.images * portions_.src_image));
        }
        const WorkspacePool::Lease filters(*workspaces_, most);
        for (const PhaseOfAll& it : phases_) {
            if (!it.run) continue;
            turn(it, weights, filters.data());
            portions_.for_each([&](Range images) {
                it.run->of(images).run(diff_dst + images.begin * portions_.dst_image,
                                       filters.data(), nullptr,
                                       diff_src + images.begin * portions_.src_image + it.first);
            });
        }
    }

private:
    void add(const std::array<Phase, kVolumeAxes>& phases) {
        const VolumeShape& shape = spec_.shape;
        PhaseOfAll made{.phases = phases};
        VolumeShape read = shape;
        std::swap(read.C, read.K);
        VolumeExtents extents;
        for (std::size_t i = 0; i < kVolumeAxes; ++i) {
            read.axes[i] = phases[i].axis;
            extents[i] = shape.axes[i].extent;
        }
        const std::int64_t element = size_of(spec_.dtype);
        VolumeStrides to = plain_strides(shape, shape.group_C(), extents);
        for (std::size_t i = 0; i < kVolumeAxes; ++i) {
            made.first += phases[i].first * to.axes[i] * element;
            to.axes[i] *= shape.axes[i].step;
        }
        if (read.taps() > 0) {
            made.filter_bytes = shape.C * shape.group_K() * read.taps() * element;
            made.run.emplace(portions_, [&](std::int64_t images) {
                return std::make_unique<const CorrelationRun>(Correlation{
                    .dtype = spec_.dtype, .shape = with_images(read, images), .to = to});
            });
        }
        phases_.push_back(std::move(made));
    }

    void turn(const PhaseOfAll& it, const void* weights, char* to) const {
        if (spec_.dtype == DType::f32) {
            turn_filters(spec_.shape, it.phases, static_cast<const float*>(weights),
                         reinterpret_cast<float*>(to));
        } else {
            turn_filters(spec_.shape, it.phases, static_cast<const std::uint16_t*>(weights),
                         reinterpret_cast<std::uint16_t*>(to));
        }
    }

    VolumeConvSpec spec_;
    Portions portions_;
    std::vector<PhaseOfAll> phases_ = {};
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

class VolumeConv::Weights {
public:
    explicit Weights(const VolumeConvSpec& spec)
        : spec_(spec),
          portions_(spec),
          runs_(portions_,
                [&](std::int64_t images) {
                    return std::make_unique<const FilterGradient>(spec.dtype,
                                                                  with_images(spec.shape, images));
                }),
          bias_(sum_of(spec)),
          elements_(spec.shape.K * spec.shape.group_C() * spec.shape.taps()) {
        if (spec.dtype == DType::f32) return;
        const std::vector<Indices> all{{'e', elements_}};
        rounding_.emplace(plain_layout(DType::f32, all), plain_layout(spec.dtype, all));
    }

    double cycles() const { return runs_.cycles(portions_); }

    void run(const VolumeGradients& it) const {
        const auto* const diff_dst = static_cast<const char*>(it.diff_dst);
        const auto* const src = static_cast<const char*>(it.src);
        const std::int64_t bytes = aligned(elements_ * size_of(DType::f32));
        const std::int64_t parts = portions_.count > 1 ? 1 : 0;
        const WorkspacePool::Lease scratch(*workspaces_, bytes * (parts + (rounding_ ? 1 : 0)));
        auto* const more = reinterpret_cast<float*>(scratch.data());
        auto* const sums = rounding_ ? reinterpret_cast<float*>(scratch.data() + bytes * parts)
                                     : static_cast<float*>(it.diff_weights);
        portions_.for_each([&](Range images) {
            const bool is_first = images.begin == 0;
            runs_.of(images).run(diff_dst + images.begin * portions_.dst_image,
                                 src + images.begin * portions_.src_image, is_first ? sums : more);
            for (std::int64_t i = 0; !is_first && i < elements_; ++i) sums[i] += more[i];
        });
        if (rounding_) rounding_->run(sums, it.diff_weights);
        bias_.run(std::array{it.diff_dst}, it.diff_bias);
    }

private:
    static RowStatement sum_of(const VolumeConvSpec& spec) {
        const std::int64_t pixels = spec.shape.results(), channels = spec.shape.K;
        return RowStatement(
            {.indices = {{"k", channels}, {"n", spec.shape.N, true}, {"j", pixels, true}},
             .result = {DType::f32, 0, {1, 0, 0}},
             .operands = {{spec.dtype, 0, {pixels, channels * pixels, 1}}},
             .reduction = Reduction::sum,
             .value = read_of(0)});
    }

    VolumeConvSpec spec_;
    Portions portions_;
    Sized<FilterGradient> runs_;
    RowStatement bias_;
    std::int64_t elements_;
    std::optional<Reorder> rounding_ = {};
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

VolumeConv::VolumeConv(const VolumeConvSpec& spec) : spec_(spec) {}

VolumeConv::~VolumeConv() = default;

const VolumeConv::Forward& VolumeConv::forward_pass() const {
    std::call_once(forward_made_, [&] { forward_ = std::make_shared<const Forward>(spec_); });
    return *forward_;
}

const VolumeConv::Data& VolumeConv::data_pass() const {
    std::call_once(data_made_, [&] { data_ = std::make_shared<const Data>(spec_); });
    return *data_;
}

const VolumeConv::Weights& VolumeConv::weights_pass() const {
    std::call_once(weights_made_, [&] { weights_ = std::make_shared<const Weights>(spec_); });
    return *weights_;
}

bool VolumeConv::is_faster(PassKind pass) const {
    if (spec_.shape.N == 0) return true;
    const auto& axes = spec_.shape.axes;
    const bool dense =
        pass != PassKind::backward_weights ||
        std::all_of(axes.begin(), axes.end(), [](const VolumeAxis& it) { return it.is_dense(); });
    const double by_slices = cycles_by_slices(spec_.shape, spec_.dtype, pass);
    const double allowed = by_slices / (dense ? kLonger : kLongerOfStrides);
    switch (pass) {
        case PassKind::forward: return forward_pass().cycles() < allowed;
        case PassKind::backward_data: return data_pass().cycles() < allowed;
        default: return weights_pass().cycles() < allowed;
    }
}

void VolumeConv::forward(const void* src, const void* weights, const float* bias, void* dst) const {
    if (spec_.shape.N == 0) return;
    const WorkOf work(spec_.shape.flops(), bytes_of(spec_));
    forward_pass().run(static_cast<const char*>(src), weights, bias, static_cast<char*>(dst));
}

void VolumeConv::backward_data(const void* diff_dst, const void* weights, void* diff_src) const {
    if (spec_.shape.N == 0) return;
    const WorkOf work(spec_.shape.flops(), bytes_of(spec_));
    data_pass().run(static_cast<const char*>(diff_dst), weights, static_cast<char*>(diff_src));
}

void VolumeConv::backward_weights(const VolumeGradients& it) const {
    const VolumeShape& shape = spec_.shape;
    if (shape.N == 0) {
        const std::int64_t elements = shape.K * shape.group_C() * shape.taps();
        std::memset(it.diff_weights, 0, static_cast<std::size_t>(elements * size_of(spec_.dtype)));
        std::fill_n(it.diff_bias, shape.K, 0.0F);
        return;
    }
    const WorkOf work(shape.flops(), bytes_of(spec_));
    weights_pass().run(it);
}

}  // namespace dlprim
