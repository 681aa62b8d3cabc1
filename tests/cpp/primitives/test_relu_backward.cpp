#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "conv_problem.h"
#include "guarded_memory.h"
#include "primitives/layers/activation_backward.h"

namespace dlprim {
namespace {

using testing::Fence;
using testing::Threads;

std::size_t index_of(std::int64_t index) { return static_cast<std::size_t>(index); }

enum class Gate : std::uint8_t { none, dst, mask };
enum class Out : std::uint8_t { none, apart, in_place };

struct Case {
    Activations tensor;
    Format layout = Format::blocked;
    Gate gate = Gate::dst;
    Out out = Out::apart;
    bool bias = true;
    Fence fence = Fence::after;
};

// Memory that ends, or begins, at a page that faults.
class Operand {
public:
    Operand(std::int64_t bytes, Fence fence)
        : memory_((bytes + 3) / 4, fence),
          data_(reinterpret_cast<std::uint8_t*>(memory_.data()) +
                (fence == Fence::after ? (bytes + 3) / 4 * 4 - bytes : 0)),
          bytes_(bytes) {}

    std::uint8_t* data() const { return data_; }
    std::vector<std::uint8_t> copy() const { return {data_, data_ + bytes_}; }
    void make_read_only() { memory_.make_read_only(); }

private:
    testing::GuardedMemory memory_;
    std::uint8_t* data_;
    std::int64_t bytes_;
};

// Where elements are, one by one, as conv_layout.h says. Channels-last is one block.
class Storage {
public:
    explicit Storage(const Case& it)
        : size_(it.tensor.height * it.tensor.width),
          pixels_(it.tensor.images * size_),
          element_(size_of(it.tensor.dtype)),
          blocks_(it.tensor.blocks) {
        if (it.layout == Format::nhwc) blocks_ = {1, channels(), channels()};
    }

    std::int64_t pixels() const { return pixels_; }
    std::int64_t channels() const { return blocks_.total(); }
    std::int64_t element(std::int64_t pixel, std::int64_t channel) const {
        return at(pixel, channel, blocks_.block);
    }
    std::int64_t bit(std::int64_t pixel, std::int64_t channel) const {
        return at(pixel, channel, (blocks_.block + 7) / 8 * 8);
    }
    // Up to the last one that exists: padding behind it is not even there.
    std::int64_t elements() const {
        return pixels_ == 0 ? 0 : element(pixels_ - 1, channels() - 1) + 1;
    }
    std::int64_t bytes() const { return elements() * element_; }
    std::int64_t mask_bytes() const {
        return pixels_ == 0 ? 0 : bit(pixels_ - 1, channels() - 1) / 8 + 1;
    }

private:
    std::int64_t at(std::int64_t pixel, std::int64_t channel, std::int64_t width) const {
        const std::int64_t inner = channel % blocks_.channels;
        const std::int64_t block =
            channel / blocks_.channels * blocks_.per_group() + inner / blocks_.block;
        const std::int64_t row = (pixel / size_ * blocks_.count() + block) * size_ + pixel % size_;
        return row * width + inner % blocks_.block;
    }

    std::int64_t size_;  // of an image
    std::int64_t pixels_;
    std::int64_t element_;  // bytes
    ChannelBlocks blocks_;
};

float get(DType dtype, const std::uint8_t* data, std::int64_t index) {
    const std::int64_t size = size_of(dtype);
    float value = 0;
    std::copy_n(data + index * size, size, reinterpret_cast<std::uint8_t*>(&value) + 4 - size);
    return value;
}

// Cuts off what bfloat16 does not have.
void put(DType dtype, float value, std::uint8_t* data, std::int64_t index) {
    const std::int64_t size = size_of(dtype);
    std::copy_n(reinterpret_cast<std::uint8_t*>(&value) + 4 - size, size, data + index * size);
}

// The bits of 0, the smallest and the largest number, 1, infinity and NaN, with either sign.
constexpr std::uint32_t kResults[] = {0x0000, 0x0001, 0x7f7f, 0x3f80, 0x7f80, 0x7f81, 0x7fff,
                                      0x8000, 0x8001, 0xff7f, 0xbf80, 0xff80, 0xff81, 0xffff};

void run(const ActivationBackward& problem) {
    const Operand sums(activation_backward_scratch_bytes(problem.tensor, problem.layout),
                       Fence::after);
    activation_backward(problem, reinterpret_cast<char*>(sums.data()));
}

class Problem {
public:
    explicit Problem(const Case& it)
        : case_(it),
          dtype_(it.tensor.dtype),
          storage_(case_),
          diff_(storage_.bytes(), it.fence),
          dst_(storage_.bytes(), it.fence),
          mask_(storage_.mask_bytes(), it.fence),
          out_(storage_.bytes(), it.fence),
          bias_(storage_.channels() * size_of(DType::f32), it.fence) {
        std::minstd_rand random(7);
        const auto next = [&] { return static_cast<std::uint8_t>(random() >> 8); };
        std::generate_n(mask_.data(), storage_.mask_bytes(), next);
        std::generate_n(out_.data(), storage_.bytes(), next);
        for (std::int64_t i = 0; i < storage_.elements(); ++i) {
            const std::uint32_t result = kResults[next() % std::size(kResults)];
            put(dtype_, std::bit_cast<float>(result << 16), dst_.data(), i);
            put(dtype_, NAN, diff_.data(), i);  // remains in padding, where it would spoil sums
        }
        // Multiples of 1/8, whose sums are exact.
        for_each([&](std::int64_t pixel, std::int64_t channel) {
            put(dtype_, static_cast<float>(next() - 128) / 8, diff_.data(),
                storage_.element(pixel, channel));
        });
        dst_.make_read_only();
        mask_.make_read_only();
        if (it.out != Out::in_place) diff_.make_read_only();
    }

    // Every byte of the result and every sum.
    void check() const {
        const Operand& result = case_.out == Out::in_place ? diff_ : out_;
        std::vector<std::uint8_t> expected = result.copy();
        std::vector<double> sums(index_of(storage_.channels()));
        for_each([&](std::int64_t pixel, std::int64_t channel) {
            const std::int64_t at = storage_.element(pixel, channel);
            const float passed = passes(pixel, channel) ? get(dtype_, diff_.data(), at) : 0.0F;
            sums[index_of(channel)] += static_cast<double>(passed);
            if (case_.out != Out::none) put(dtype_, passed, expected.data(), at);
        });
        auto* const bias = reinterpret_cast<float*>(bias_.data());
        std::fill_n(bias, storage_.channels(), -7.0F);
        run({.tensor = case_.tensor,
             .layout = case_.layout,
             .activation = Activation::relu,
             .diff_dst = diff_.data(),
             .saved = case_.gate == Gate::dst ? dst_.data() : nullptr,
             .relu_mask = case_.gate == Gate::mask ? mask_.data() : nullptr,
             .out = case_.out == Out::none ? nullptr : result.data(),
             .diff_bias = case_.bias ? bias : nullptr});
        if (!case_.bias) std::fill(sums.begin(), sums.end(), -7.0);
        const bool same[] = {result.copy() == expected, std::equal(sums.begin(), sums.end(), bias)};
        CHECK(same[0]);
        CHECK(same[1]);
    }

private:
    template <class Body>
    void for_each(const Body& body) const {
        for (std::int64_t pixel = 0; pixel < storage_.pixels(); ++pixel) {
            for (std::int64_t c = 0; c < storage_.channels(); ++c) body(pixel, c);
        }
    }

    bool passes(std::int64_t pixel, std::int64_t channel) const {
        if (case_.gate == Gate::none) return true;
        const std::int64_t at = storage_.element(pixel, channel);
        if (case_.gate == Gate::dst) return !(get(dtype_, dst_.data(), at) <= 0);
        const std::int64_t bit = storage_.bit(pixel, channel);
        return (mask_.data()[bit / 8] >> bit % 8 & 1) != 0;
    }

    Case case_;
    DType dtype_;
    Storage storage_;
    Operand diff_, dst_, mask_, out_, bias_;
};

void check(const Case& it) {
    INFO(it.tensor.blocks.groups, " x ", it.tensor.blocks.channels, name_of(it.tensor.dtype),
         " layout ", static_cast<int>(it.layout), " gate ", static_cast<int>(it.gate));
    Problem(it).check();
}

// Every gate, result and fence.
void check_variants(Case it) {
    for (int variant = 0; variant < 36; ++variant) {
        it.gate = static_cast<Gate>(variant % 3);
        it.out = static_cast<Out>(variant / 3 % 3);
        it.bias = variant / 9 % 2 == 0;
        it.fence = variant / 18 == 0 ? Fence::before : Fence::after;
        check(it);
    }
}

template <class Check>
void for_layouts_and_types(const Check& check_case) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        check_case(Case{.tensor = {.width = 3, .dtype = dtype}, .layout = Format::blocked});
        check_case(Case{.tensor = {.width = 3, .dtype = dtype}, .layout = Format::nhwc});
    }
}

TEST_CASE("every layout, type, gate and channel tail, in one group and in several") {
    for_layouts_and_types([](Case it) {
        it.tensor.images = it.tensor.height = 2;
        for (const std::int64_t channels :
             {1, 2, 3, 4, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 90, 130}) {
            for (const std::int64_t groups : {1, 3}) {
                it.tensor.blocks = channel_blocks(groups, channels);
                check_variants(it);
            }
        }
    });
}

TEST_CASE("no images") {
    for_layouts_and_types([](Case it) {
        it.tensor = {0, 4, 4, channel_blocks(2, 70), it.tensor.dtype};
        check_variants(it);
    });
}

TEST_CASE("pixels that are cut into tasks: parts of an image, and images by the dozen") {
    for (const int threads : {1, 2, 5}) {
        const Threads guard(threads);
        for_layouts_and_types([](Case it) {
            for (const std::int64_t channels : {5, 64, 100}) {
                it.tensor.blocks = channel_blocks(1, channels);
                it.tensor.images = 2;
                it.tensor.height = 301;
                check(it);
                std::swap(it.tensor.images, it.tensor.height);
                check(it);
            }
        });
    }
}

TEST_CASE("a gradient of NaN passes with all its bits, and into the sum") {
    for_layouts_and_types([](Case it) {
        constexpr std::uint32_t kSignalling = 0xff8f0000;
        constexpr std::int64_t kChannels = 37;
        const DType dtype = it.tensor.dtype;
        it.tensor = {1, 1, 1, channel_blocks(1, kChannels), dtype};
        std::vector<std::uint8_t> diff(index_of(kChannels * size_of(dtype)));
        const auto nan = std::bit_cast<float>(kSignalling);
        for (std::int64_t i = 0; i < kChannels; ++i) put(dtype, nan, diff.data(), i);
        const std::uint8_t mask[] = {0x55, 0x55, 0x55, 0x55, 0x55};
        std::vector<float> bias(kChannels);
        run({it.tensor, it.layout, Activation::relu, diff.data(), nullptr, mask, diff.data(),
             bias.data()});
        for (std::int64_t i = 0; i < kChannels; ++i) {
            const auto bits = std::bit_cast<std::uint32_t>(get(dtype, diff.data(), i));
            CHECK(bits == (i % 2 == 0 ? kSignalling : 0));
            CHECK(std::isnan(bias[index_of(i)]) == (i % 2 == 0));
        }
    });
}

TEST_CASE("a long sum is accurate, and the same bits for any number of threads") {
    std::minstd_rand random(3);
    std::vector<float> diff(7 * 5000 * 3);
    for (float& value : diff) value = 1.0F + static_cast<float>(random() & 0xffff) / 65536.0F;
    const Activations tensor{7, 5000, 3, channel_blocks(1, 1)};
    const double sum = std::accumulate(diff.begin(), diff.end(), 0.0);
    for (const Format layout : {Format::blocked, Format::nhwc}) {
        std::vector<float> sums;
        for (const int threads : {1, 2, 5}) {
            const Threads guard(threads);
            run({tensor, layout, Activation::none, diff.data(), nullptr, nullptr, nullptr,
                 &sums.emplace_back()});
            CHECK(sums.front() == sums.back());
        }
        CHECK(std::abs(static_cast<double>(sums.front()) / sum - 1) < 2e-7);
    }
}

}  // namespace
}  // namespace dlprim
