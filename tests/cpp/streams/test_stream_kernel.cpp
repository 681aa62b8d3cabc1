#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include "guarded_memory.h"
#include "jit/element_reference.h"
#include "jit/isa.h"
#include "streams/stream_kernel.h"

namespace dlprim {
namespace {

using testing::Fence;
using testing::GuardedMemory;
using Way = StreamSpec::Way;

// A drawn spec with operands whose last row ends where nobody may read.
class Problem {
public:
    Problem(unsigned seed, Isa isa, Fence fence) : random_(seed), isa_(isa) {
        constexpr std::array kTypes = {DType::f32, DType::bf16, DType::s8};
        spec_.way = any(0, 1) == 0 ? Way::along : Way::across;
        spec_.matrix = kTypes.at(static_cast<std::size_t>(any(0, 2)));
        const bool pairs = spec_.way == Way::along && spec_.matrix == DType::bf16 &&
                           streams_pairs(isa) && any(0, 1) == 0;
        spec_.vectors = pairs ? DType::bf16 : DType::f32;
        spec_.columns = any(0, 2) == 0 ? any(1, 300) : 16 * any(1, 8);
        spec_.count = static_cast<int>(any(1, most_streamed(isa)));
        rows_ = any(0, 40);
        spec_.distance = rows_ + any(0, 5);
        const std::int64_t step = spec_.columns + any(0, 1) * any(0, 9);
        size_ = std::max<std::int64_t>((rows_ - 1) * step + spec_.columns, 1);
        step_ = step * size_of(spec_.matrix);
        const std::int64_t bytes = size_ * size_of(spec_.matrix);
        memory_ = std::make_unique<GuardedMemory>((bytes + 3) / 4, fence);
        matrix_ = reinterpret_cast<char*>(memory_->data());
        if (fence == Fence::after) matrix_ += (bytes + 3) / 4 * 4 - bytes;
        const float range = spec_.matrix == DType::s8 ? 100 : 1;
        for (std::int64_t i = 0; i < size_; ++i) {
            set_element(spec_.matrix, matrix_, i, range * number());
        }
    }

    const StreamSpec& spec() const { return spec_; }

    void check() {
        const std::int64_t pitch = stream_pitch(spec_.columns);
        std::vector<float> numbers(static_cast<std::size_t>(spec_.count * spec_.distance + 1));
        std::vector<float> vectors(static_cast<std::size_t>(spec_.count * pitch));
        for (float& it : numbers) it = number();
        for (std::int64_t v = 0; v < spec_.count; ++v) {
            for (std::int64_t c = 0; c < spec_.columns; ++c) {
                set_element(spec_.vectors, vectors.data(), v * pitch + c, number());
            }
        }
        StreamArgs args{.matrix = matrix_, .step = step_, .rows = rows_};
        std::vector<float> made_numbers = numbers, made_vectors = vectors;
        args.numbers = numbers.data();
        args.vectors = vectors.data();
        reference_stream(spec_, args);
        for (std::int64_t v = 0; v < spec_.count; ++v) take(vectors, made_vectors, v * pitch);
        args.numbers = made_numbers.data();
        args.vectors = made_vectors.data();
        (*stream_kernel(spec_, isa_))(args);
        const bool is_along = spec_.way == Way::along;
        const double range = (spec_.matrix == DType::s8 ? 100 : 1) *
                             static_cast<double>(is_along ? spec_.columns : rows_ + 1);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            CHECK(std::abs(numbers[i] - made_numbers[i]) <= 1e-6 * range);
        }
        for (std::int64_t v = 0; v < spec_.count && !is_along; ++v) {
            for (std::int64_t c = 0; c < spec_.columns; ++c) {
                const auto i = static_cast<std::size_t>(v * pitch + c);
                CHECK(std::abs(vectors[i] - made_vectors[i]) <= 1e-6 * range);
            }
        }
    }

private:
    // A vector as the kernel reads it.
    void take(const std::vector<float>& from, std::vector<float>& to, std::int64_t first) {
        const std::int64_t bytes = first * size_of(spec_.vectors);
        take_vector(spec_, isa_, spec_.vectors, reinterpret_cast<const char*>(from.data()) + bytes,
                    reinterpret_cast<char*>(to.data()) + bytes);
    }

    std::int64_t any(std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
    }
    float number() { return std::uniform_real_distribution<float>(-1, 1)(random_); }

    std::mt19937 random_;
    Isa isa_;
    StreamSpec spec_;
    std::int64_t rows_ = 0;
    std::int64_t size_ = 0;
    std::int64_t step_ = 0;
    std::unique_ptr<GuardedMemory> memory_;
    char* matrix_ = nullptr;
};

TEST_CASE("rows meet a few vectors as in plain loops, and nothing beside them is touched") {
    for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16}) {
        if (isa > usable_isa()) continue;
        for (unsigned seed = 0; seed < 120; ++seed) {
            Problem problem(seed, isa, seed % 2 == 0 ? Fence::before : Fence::after);
            CAPTURE(StreamKernel(problem.spec(), isa).name());
            problem.check();
        }
    }
}

TEST_CASE("a spec that no kernel has is refused") {
    const StreamSpec good{.columns = 8, .distance = 4};
    CHECK_NOTHROW(StreamKernel(good, Isa::scalar));
    for (const auto& change : std::vector<void (*)(StreamSpec&)>{
             [](StreamSpec& it) { it.columns = 0; },
             [](StreamSpec& it) { it.columns = kMostStreamColumns + 1; },
             [](StreamSpec& it) { it.count = 9; },
             [](StreamSpec& it) { it.matrix = DType::u8; },
             [](StreamSpec& it) { it.vectors = DType::bf16; },
             [](StreamSpec& it) { it.distance = -1; },
         }) {
        StreamSpec wrong = good;
        change(wrong);
        CHECK_THROWS_AS(StreamKernel(wrong, Isa::scalar), std::invalid_argument);
    }
}

}  // namespace
}  // namespace dlprim
