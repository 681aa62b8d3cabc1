#include "primitives/conv/plain_conv.h"

#include <algorithm>

#include "primitives/conv/conv2d.h"
#include "primitives/nest/fixed_parts.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// Bytes of packed images: about what an L2 cache holds.
constexpr std::int64_t kPortion = std::int64_t{1} << 20;

TensorForm form_in(const ConvSpec& spec, ConvOperand operand) {
    return conv_form(spec.problem(), operand);
}

// Of all operands.
double bytes_of(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    const std::int64_t elements = shape.N * shape.C * shape.H * shape.W +
                                  shape.N * shape.K * shape.P() * shape.Q() +
                                  shape.K * shape.group_C() * shape.R * shape.S;
    return static_cast<double>(elements * size_of(spec.dtype));
}

ConvSpec with_images(ConvSpec spec, std::int64_t images) {
    spec.shape.N = images;
    return spec;
}

ConvSpec valid(ConvSpec spec) {
    spec.shape = validated(spec.shape);
    return spec;
}

std::int64_t portions_of(const ConvSpec& spec) {
    if (spec.layout == Format::nhwc || spec.shape.N <= 1) return 1;
    const ConvSpec one = with_images(spec, 1);
    const std::int64_t image = form_in(one, ConvOperand::src).packed.bytes() +
                               form_in(one, ConvOperand::dst).packed.bytes();
    const std::int64_t enough =
        std::max(kPortion, form_in(one, ConvOperand::weights).packed.bytes());
    return std::clamp<std::int64_t>(spec.shape.N * image / enough, 1, spec.shape.N);
}

// A pointwise filter that leaves out pixels which packing would copy, and the same on those that it
// reads. Channels-last images are read in place, with gaps.
bool skips_pixels(const ConvSpec& spec) {
    const ConvShape& shape = spec.shape;
    return spec.layout == Format::blocked && shape.R == 1 && shape.S == 1 &&
           shape.stride_h * shape.stride_w > 1 &&
           shape.pad_top + shape.pad_bottom + shape.pad_left + shape.pad_right == 0;
}

ConvSpec without_strides(ConvSpec spec) {
    spec.shape.H = spec.shape.P();
    spec.shape.W = spec.shape.Q();
    spec.shape.stride_h = 1;
    spec.shape.stride_w = 1;
    return spec;
}

// Those pixels, of as many bytes as an Element.
template <class Element>
void gather_pixels(const ConvShape& shape, const void* src, void* dst) {
    const std::int64_t P = shape.P(), Q = shape.Q();
    parallel_for(shape.N * shape.C, [&](std::int64_t plane) {
        const Element* const from = static_cast<const Element*>(src) + plane * shape.H * shape.W;
        Element* to = static_cast<Element*>(dst) + plane * P * Q;
        for (std::int64_t p = 0; p < P; ++p) {
            const Element* const row = from + p * shape.stride_h * shape.W;
            for (std::int64_t q = 0; q < Q; ++q) *to++ = row[q * shape.stride_w];
        }
    });
}

// Images of a portion, as their owner has them and as the passes read them.
class Images {
public:
    Images(const ConvSpec& spec, ConvOperand operand)
        : Images(form_in(spec, operand), spec.layout == Format::nhwc) {}

    std::int64_t scratch_bytes() const { return bytes_; }

    // What the passes read: a packed copy, or the images themselves.
    const void* packed(const void* plain, char* scratch) const {
        if (bytes_ == 0 || plain == nullptr) return plain;
        pack_.run(plain, scratch);
        return scratch;
    }
    // Where the passes write, and from there to the owner.
    void* target(void* plain, char* scratch) const { return bytes_ == 0 ? plain : scratch; }
    void unpack(const void* scratch, void* plain) const {
        if (bytes_ > 0) unpack_.run(scratch, plain);
    }

private:
    Images(const TensorForm& form, bool in_place)
        : pack_(form.plain, form.packed),
          unpack_(form.packed, form.plain),
          bytes_(in_place ? 0 : aligned(form.packed.bytes())) {}

    Reorder pack_;
    Reorder unpack_;
    std::int64_t bytes_;
};

// More to `sums`.
void add(float* sums, std::int64_t floats, float* more) {
    FixedParts(2, floats, DType::f32).add(sums, reinterpret_cast<char*>(more));
}

}  // namespace

struct PlainConv::Portion {
    // Of a forward pass, or of a backward one.
    Portion(const ConvSpec& spec, const ConvSpec& run)
        : from(spec), conv(run), src(run, ConvOperand::src), dst(run, ConvOperand::dst) {
        const std::int64_t element = size_of(spec.dtype);
        const ConvShape& shape = spec.shape;
        src_image = shape.C * shape.H * shape.W * element;
        dst_image = shape.K * shape.P() * shape.Q() * element;
        dst_bytes = aligned(shape.N * dst_image);
        if (run.shape.H * run.shape.W != shape.H * shape.W) {
            gathered_bytes = aligned(shape.N * shape.C * shape.P() * shape.Q() * element);
        }
    }

    // What the pass reads.
    const void* src_in(const void* plain, Range images, char* gathered, char* packed) const {
        const char* const it = static_cast<const char*>(plain) + images.begin * src_image;
        if (gathered_bytes == 0) return src.packed(it, packed);
        if (from.dtype == DType::f32) {
            gather_pixels<float>(from.shape, it, gathered);
        } else {
            gather_pixels<std::uint16_t>(from.shape, it, gathered);
        }
        return src.packed(gathered, packed);
    }

    ConvSpec from;
    Conv2d conv;
    Images src;
    Images dst;
    std::int64_t src_image;  // bytes in the plain arrays
    std::int64_t dst_image;
    std::int64_t dst_bytes;           // of all images
    std::int64_t gathered_bytes = 0;  // of the pixels that are read, 0 where all are
};

// Portions of two sizes at most: the first ones may have an image more than the others.
struct PlainConv::Portions {
    Portions(const ConvSpec& spec, const ConvSpec& run, std::int64_t portions)
        : images(spec.shape.N), count(portions) {
        const std::int64_t most = chunk(images, count, 0).size();
        larger = std::make_unique<Portion>(with_images(spec, most), with_images(run, most));
        if (images % count == 0) return;
        smaller =
            std::make_unique<Portion>(with_images(spec, most - 1), with_images(run, most - 1));
    }

    template <class Body>
    void for_each(const Body& body) const {
        for (std::int64_t i = 0; i < count; ++i) {
            const bool has_more = smaller == nullptr || i < images % count;
            body(has_more ? *larger : *smaller, chunk(images, count, i));
        }
    }

    // Weights are transformed once for all portions, where these agree about it.
    std::int64_t transformed_bytes(PassKind pass) const {
        const bool agree =
            smaller == nullptr || smaller->conv.algorithm(pass) == larger->conv.algorithm(pass);
        if (count == 1 || !agree) return 0;
        return aligned(larger->conv.transformed_floats(pass) * size_of(DType::f32));
    }
    const float* transformed(PassKind pass, const void* weights, char* scratch) const {
        if (transformed_bytes(pass) == 0) return nullptr;
        auto* const floats = reinterpret_cast<float*>(scratch);
        larger->conv.transform_weights(pass, weights, floats);
        return floats;
    }

    std::int64_t images;
    std::int64_t count;
    std::unique_ptr<Portion> larger;
    std::unique_ptr<Portion> smaller;
};

PlainConv::PlainConv(const ConvSpec& spec)
    : PlainConv(valid(spec), conv_form(valid(spec).problem(), ConvOperand::weights),
                conv_form(valid(spec).problem(), ConvOperand::diff_weights)) {}

PlainConv::PlainConv(const ConvSpec& spec, const TensorForm& weights, const TensorForm& gradient)
    : spec_(spec),
      portions_(portions_of(spec_)),
      weights_(weights.plain, weights.packed),
      diff_weights_(gradient.packed, weights.plain),
      weights_bytes_(weights.packed.bytes()),
      weights_elements_(gradient.packed.elements()) {}

std::int64_t PlainConv::portion_images() const { return chunk(spec_.shape.N, portions_, 0).size(); }

Conv2d& PlainConv::of_portion() const { return backward_portions().larger->conv; }

// Made by the first call; both passes have the same ones, but where the forward pass leaves out
// pixels.
const PlainConv::Portions& PlainConv::forward_portions() const {
    std::call_once(forward_made_, [&] {
        const ConvSpec run = skips_pixels(spec_) ? without_strides(spec_) : spec_;
        forward_ = std::make_shared<const Portions>(spec_, run, portions_);
    });
    return *forward_;
}

const PlainConv::Portions& PlainConv::backward_portions() const {
    if (!skips_pixels(spec_)) return forward_portions();
    std::call_once(backward_made_,
                   [&] { backward_ = std::make_shared<const Portions>(spec_, spec_, portions_); });
    return *backward_;
}

void PlainConv::forward(const ConvForward& it) const {
    const WorkOf work(spec_.shape.flops(), bytes_of(spec_));
    const Portions& portions = forward_portions();
    const Portion& most = *portions.larger;
    const std::int64_t tiles_bytes = portions.transformed_bytes(PassKind::forward);
    const std::int64_t dst_bytes = most.dst.scratch_bytes();
    const std::int64_t residual_bytes = it.residual == nullptr ? 0 : dst_bytes;
    const WorkspacePool::Lease scratch(*workspaces_,
                                       aligned(weights_bytes_) + tiles_bytes + most.gathered_bytes +
                                           most.src.scratch_bytes() + dst_bytes + residual_bytes);
    ScratchCutter cutter(scratch.data());
    char* const weights = cutter.take(weights_bytes_);
    char* const tiles = cutter.take(tiles_bytes);
    char* const gathered = cutter.take(most.gathered_bytes);
    char* const src = cutter.take(most.src.scratch_bytes());
    char* const dst = cutter.take(dst_bytes);
    char* const residual = cutter.take(residual_bytes);
    weights_.run(it.weights, weights);
    const float* const filter = portions.transformed(PassKind::forward, weights, tiles);
    portions.for_each([&](const Portion& portion, Range images) {
        const std::int64_t at = images.begin * portion.dst_image;
        const char* const added =
            it.residual == nullptr ? nullptr : static_cast<const char*>(it.residual) + at;
        char* const to = static_cast<char*>(it.dst) + at;
        portion.conv.forward({.src = portion.src_in(it.src, images, gathered, src),
                              .weights = weights,
                              .bias = it.bias,
                              .residual = portion.dst.packed(added, residual),
                              .transformed = filter,
                              .dst = portion.dst.target(to, dst)});
        portion.dst.unpack(dst, to);
    });
}

// What a backward pass needs for the gradients that are asked for.
struct PlainConv::BackwardScratch {
    BackwardScratch(char* base, const PlainConv& conv, const PlainConvGradients& it)
        : cutter(base) {
        const Portions& portions = conv.backward_portions();
        const Portion& most = *portions.larger;
        const std::int64_t src_bytes = most.src.scratch_bytes();
        const std::int64_t saved_bytes = it.saved == nullptr ? 0 : most.dst.scratch_bytes();
        const bool in_place = conv.spec_.layout == Format::nhwc;
        diff_dst = cutter.take(most.dst.scratch_bytes());
        saved = cutter.take(saved_bytes);
        passed = cutter.take(in_place && it.saved != nullptr ? most.dst_bytes : 0);
        if (it.diff_src != nullptr) {
            weights = cutter.take(conv.weights_bytes_);
            tiles = cutter.take(portions.transformed_bytes(PassKind::backward_data));
            diff_src = cutter.take(src_bytes);
        }
        if (it.diff_weights == nullptr) return;
        src = cutter.take(src_bytes);
        sums = cutter.take_floats(conv.weights_elements_);
        more = cutter.take_floats(conv.weights_elements_);
        bias = cutter.take_floats(conv.spec_.shape.K);
        more_bias = cutter.take_floats(conv.spec_.shape.K);
    }

    ScratchCutter cutter;
    char* diff_dst = nullptr;
    char* saved = nullptr;
    char* passed = nullptr;
    char* weights = nullptr;
    char* tiles = nullptr;
    char* diff_src = nullptr;
    char* src = nullptr;
    float* sums = nullptr;
    float* more = nullptr;
    float* bias = nullptr;
    float* more_bias = nullptr;
};

void PlainConv::backward(const PlainConvGradients& it) const {
    const bool to_data = it.diff_src != nullptr, to_weights = it.diff_weights != nullptr;
    const int passes = int{to_data} + int{to_weights};
    const WorkOf work(passes * spec_.shape.flops(), passes * bytes_of(spec_));
    const Portions& portions = backward_portions();
    const std::int64_t bytes = BackwardScratch(nullptr, *this, it).cutter.bytes();
    const WorkspacePool::Lease scratch(*workspaces_, bytes);
    const BackwardScratch to(scratch.data(), *this, it);
    const float* filter = nullptr;
    if (to_data) {
        weights_.run(it.weights, to.weights);
        filter = portions.transformed(PassKind::backward_data, to.weights, to.tiles);
    }
    portions.for_each([&](const Portion& portion, Range images) {
        const bool is_first = images.begin == 0;
        const std::int64_t at = images.begin * portion.dst_image;
        const void* gradient =
            portion.dst.packed(static_cast<const char*>(it.diff_dst) + at, to.diff_dst);
        ActivationBackward slope{.diff_dst = gradient,
                                 .diff_bias = is_first ? to.bias : to.more_bias};
        if (it.saved != nullptr) {
            slope.saved = portion.dst.packed(static_cast<const char*>(it.saved) + at, to.saved);
            slope.out = portion.dst.target(to.passed, to.diff_dst);
            gradient = slope.out;
        }
        if (to_weights) portion.conv.backward_relu(slope);
        if (to_data) {
            char* const plain = static_cast<char*>(it.diff_src) + images.begin * portion.src_image;
            void* const target = portion.src.target(plain, to.diff_src);
            portion.conv.backward_data(gradient, to.weights, target, filter);
            portion.src.unpack(to.diff_src, plain);
        }
        if (!to_weights) return;
        const void* const src = portion.src_in(it.src, images, nullptr, to.src);
        portion.conv.backward_weights(src, gradient, DType::f32, is_first ? to.sums : to.more);
        if (is_first) return;
        add(to.sums, weights_elements_, to.more);
        add(to.bias, spec_.shape.K, to.more_bias);
    });
    if (!to_weights) return;
    diff_weights_.run(to.sums, it.diff_weights);
    std::copy_n(to.bias, spec_.shape.K, it.diff_bias);
}

}  // namespace dlprim
