#include "conv_problem.h"

#include <algorithm>
#include <cstring>

#include "primitives/reorder/pack.h"
#include "primitives/reorder/reorder.h"

namespace dlprim::testing {
namespace {

constexpr std::byte kUntouched{0xa5};

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

float rounded(DType dtype, double value) {
    auto number = static_cast<float>(value);
    if (dtype == DType::f32) return number;
    std::uint16_t half = 0;
    round_to_bf16(&number, &half, 1);
    widen_to_f32(&half, &number, 1);
    return number;
}

std::vector<float> rounded(DType dtype, const std::vector<double>& values) {
    std::vector<float> numbers;
    for (const double value : values) numbers.push_back(rounded(dtype, value));
    return numbers;
}

// Plain elements of a type, without gaps.
std::vector<std::byte> bytes_of(const std::vector<float>& plain, DType dtype) {
    const auto count = static_cast<std::int64_t>(plain.size());
    std::vector<std::byte> bytes(plain.size() * at(size_of(dtype)));
    if (dtype == DType::f32) {
        std::copy_n(reinterpret_cast<const std::byte*>(plain.data()), bytes.size(), bytes.begin());
    } else {
        round_to_bf16(plain.data(), reinterpret_cast<std::uint16_t*>(bytes.data()), count);
    }
    return bytes;
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes, DType dtype) {
    std::vector<float> plain(bytes.size() / at(size_of(dtype)));
    if (dtype == DType::f32) {
        std::copy_n(bytes.begin(), bytes.size(), reinterpret_cast<std::byte*>(plain.data()));
    } else {
        widen_to_f32(reinterpret_cast<const std::uint16_t*>(bytes.data()), plain.data(),
                     static_cast<std::int64_t>(plain.size()));
    }
    return plain;
}

// src, dst or one of their gradients as the library stores them. Written without the packing
// functions: whoever confuses the layout does not do so twice in the same way.
class Activation4d {
public:
    Activation4d(const ConvSpec& spec, bool is_dst, Fence fence)
        : dtype_(spec.dtype),
          layout_(spec.layout),
          images_(spec.shape.N),
          pixels_(is_dst ? spec.shape.P() * spec.shape.Q() : spec.shape.H * spec.shape.W),
          blocks_(is_dst ? dst_blocks(spec.shape) : src_blocks(spec.shape)),
          memory_(images_ * pixels_ * stored_channels() * size_of(dtype_), fence) {
        std::fill_n(memory_.data(), memory_.size(), kUntouched);
    }

    // Channels that do not exist become NaN.
    void write(const std::vector<float>& plain) {
        std::fill_n(memory_.data(), memory_.size(), std::byte{0xff});
        const std::vector<std::byte> bytes = bytes_of(plain, dtype_);
        for (std::int64_t i = 0; i < elements(); ++i) {
            std::memcpy(element(i), &bytes[at(i * size_of(dtype_))], at(size_of(dtype_)));
        }
    }

    std::vector<float> read() const {
        std::vector<std::byte> bytes(at(elements() * size_of(dtype_)));
        for (std::int64_t i = 0; i < elements(); ++i) {
            std::memcpy(&bytes[at(i * size_of(dtype_))], element(i), at(size_of(dtype_)));
        }
        return floats_of(bytes, dtype_);
    }

    // Whether what belongs to no channel was never written; the channels are lost.
    bool padding_is_untouched() const {
        for (std::int64_t i = 0; i < elements(); ++i) {
            std::fill_n(element(i), size_of(dtype_), kUntouched);
        }
        return std::all_of(memory_.data(), memory_.data() + memory_.size(),
                           [](std::byte byte) { return byte == kUntouched; });
    }

    void* data() const { return memory_.data(); }
    std::int64_t elements() const { return images_ * blocks_.total() * pixels_; }

    // Of the mask: where the bit of an element is, and how many bytes there are.
    std::int64_t mask_byte(std::int64_t index) const {
        const std::int64_t place = place_of(index);
        return place / row_length() * mask_row() + place % row_length() / 8;
    }
    std::int64_t mask_bit(std::int64_t index) const { return place_of(index) % row_length() % 8; }
    std::int64_t mask_bytes() const {
        return images_ * pixels_ * stored_channels() / row_length() * mask_row();
    }

private:
    std::int64_t row_length() const {
        return layout_ == Format::nhwc ? blocks_.total() : blocks_.block;
    }
    std::int64_t mask_row() const { return (row_length() + 7) / 8; }
    std::int64_t stored_channels() const {
        return layout_ == Format::nhwc ? blocks_.total() : blocks_.count() * blocks_.block;
    }

    std::int64_t place_of(std::int64_t index) const {
        const std::int64_t n = index / pixels_ / blocks_.total();
        const std::int64_t c = index / pixels_ % blocks_.total();
        const std::int64_t pixel = index % pixels_;
        if (layout_ == Format::nhwc) return (n * pixels_ + pixel) * blocks_.total() + c;
        const std::int64_t within = c % blocks_.channels;
        const std::int64_t block =
            c / blocks_.channels * blocks_.per_group() + within / blocks_.block;
        return ((n * blocks_.count() + block) * pixels_ + pixel) * blocks_.block +
               within % blocks_.block;
    }
    std::byte* element(std::int64_t index) const {
        return memory_.data() + place_of(index) * size_of(dtype_);
    }

    DType dtype_;
    Format layout_;
    std::int64_t images_;
    std::int64_t pixels_;
    ChannelBlocks blocks_;
    GuardedBytes memory_;
};

// body(index of dst, of src, of weights) for every product of the convolution.
template <class Body>
void for_products(const ConvShape& shape, const Body& body) {
    const std::int64_t P = shape.P();
    const std::int64_t Q = shape.Q();
    for (std::int64_t i = 0; i < shape.N * shape.K * P * Q; ++i) {
        const std::int64_t k = i / (P * Q) % shape.K;
        const std::int64_t first_c = k / shape.group_K() * shape.group_C();
        const std::int64_t first_plane = i / (P * Q) / shape.K * shape.C + first_c;
        for (std::int64_t tap = 0; tap < shape.R * shape.S; ++tap) {
            const std::int64_t h =
                i / Q % P * shape.stride_h + tap / shape.S * shape.dilation_h - shape.pad_top;
            const std::int64_t w =
                i % Q * shape.stride_w + tap % shape.S * shape.dilation_w - shape.pad_left;
            if (h < 0 || h >= shape.H || w < 0 || w >= shape.W) continue;
            for (std::int64_t c = 0; c < shape.group_C(); ++c) {
                body(at(i), at(((first_plane + c) * shape.H + h) * shape.W + w),
                     at((k * shape.group_C() + c) * shape.R * shape.S + tap));
            }
        }
    }
}

// diff_weights in plain order.
std::vector<float> diff_weights_of(const Conv2d& conv, const void* src, const void* diff_dst,
                                   DType to, Fence fence) {
    const ConvShape& shape = conv.spec().shape;
    const GuardedBytes packed(packed_weights_size(shape, DType::f32) * size_of(to), fence);
    std::fill_n(packed.data(), packed.size(), std::byte{0xff});
    conv.backward_weights(src, diff_dst, to, packed.data());
    std::vector<std::byte> plain(at(shape.K * shape.group_C() * shape.R * shape.S * size_of(to)));
    const std::vector<TensorForm> forms = conv_forms({shape, to, Format::blocked});
    const TensorForm& form =
        form_of(forms, to == DType::f32 ? "diff_weights" : "narrow_diff_weights");
    reorder(form.packed, packed.data(), form.plain, plain.data());
    return floats_of(plain, to);
}

}  // namespace

ConvOperands conv_operands(const ConvShape& shape, Values values, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    const auto drawn = [&](std::int64_t size) {
        std::vector<float> plain(at(size));
        for (float& value : plain) {
            value = values == Values::reals
                        ? normal(random)
                        : static_cast<float>(static_cast<int>(random() % 17) - 8) / 8;
        }
        return plain;
    };
    const std::int64_t dst = shape.N * shape.K * shape.P() * shape.Q();
    return {drawn(shape.N * shape.C * shape.H * shape.W),
            drawn(shape.K * shape.group_C() * shape.R * shape.S), drawn(shape.K), drawn(dst),
            drawn(dst)};
}

ConvOracle::ConvOracle(const ConvShape& shape, const ConvOperands& operands)
    : shape_(shape),
      operands_(operands),
      dst_(operands.diff_dst.size()),
      diff_src_(operands.src.size()),
      diff_weights_(operands.weights.size()) {
    for_products(shape, [&](std::size_t out, std::size_t in, std::size_t tap) {
        dst_[out] += double{operands.src[in]} * double{operands.weights[tap]};
        diff_src_[in] += double{operands.diff_dst[out]} * double{operands.weights[tap]};
        diff_weights_[tap] += double{operands.diff_dst[out]} * double{operands.src[in]};
    });
}

ConvResults ConvOracle::results(const ConvSpec& spec, const ConvFused& fused) const {
    ConvResults results{.diff_src = rounded(spec.dtype, diff_src_),
                        .diff_weights = rounded(spec.dtype, diff_weights_),
                        .diff_weights_float = rounded(DType::f32, diff_weights_)};
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(dst_.size()); ++i) {
        double value = dst_[at(i)];
        if (spec.bias)
            value += double{operands_.bias[at(i / (shape_.P() * shape_.Q()) % shape_.K)]};
        if (fused.residual) value += double{operands_.residual[at(i)]};
        if (fused.mask) results.mask.push_back(value > 0 ? 1 : 0);
        if (spec.activation == dlprim::Activation::relu) value = std::max(value, 0.0);
        results.dst.push_back(rounded(spec.dtype, value));
    }
    return results;
}

ConvResults computed(const Conv2d& conv, const ConvOperands& operands, const ConvFused& fused,
                     Fence fence, std::string& fault) {
    const ConvSpec& spec = conv.spec();
    Activation4d src(spec, false, fence);
    Activation4d diff_dst(spec, true, fence);
    Activation4d residual(spec, true, fence);
    src.write(operands.src);
    diff_dst.write(operands.diff_dst);
    residual.write(operands.residual);
    const GuardedBytes weights(packed_weights_size(spec.shape, spec.dtype) * size_of(spec.dtype),
                               fence);
    const std::vector<TensorForm> forms = conv_forms({spec.shape, spec.dtype, spec.layout});
    const TensorForm& form = form_of(forms, "weights");
    reorder(form.plain, bytes_of(operands.weights, spec.dtype).data(), form.packed, weights.data());
    const GuardedBytes bias(spec.shape.K * 4, fence);
    std::memcpy(bias.data(), operands.bias.data(), at(bias.size()));
    const Activation4d dst(spec, true, fence);
    const Activation4d diff_src(spec, false, fence);
    const GuardedBytes mask(dst.mask_bytes(), fence);
    conv.forward({.src = src.data(),
                  .weights = weights.data(),
                  .bias = spec.bias ? reinterpret_cast<const float*>(bias.data()) : nullptr,
                  .residual = fused.residual ? residual.data() : nullptr,
                  .relu_mask = fused.mask ? reinterpret_cast<std::uint8_t*>(mask.data()) : nullptr,
                  .dst = dst.data()});
    conv.backward_data(diff_dst.data(), weights.data(), diff_src.data());
    ConvResults results{.dst = dst.read(), .diff_src = diff_src.read()};
    for (std::int64_t i = 0; fused.mask && i < dst.elements(); ++i) {
        const auto byte = std::to_integer<unsigned>(mask.data()[dst.mask_byte(i)]);
        results.mask.push_back(static_cast<float>(byte >> dst.mask_bit(i) & 1U));
    }
    results.diff_weights = diff_weights_of(conv, src.data(), diff_dst.data(), spec.dtype, fence);
    results.diff_weights_float =
        diff_weights_of(conv, src.data(), diff_dst.data(), DType::f32, fence);
    if (!dst.padding_is_untouched()) fault = "channels of dst that do not exist were written";
    if (!diff_src.padding_is_untouched())
        fault = "channels of diff_src that do not exist were written";
    return results;
}

}  // namespace dlprim::testing
