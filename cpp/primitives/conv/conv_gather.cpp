#include "primitives/conv/conv_gather.h"

#include <cstring>

#include "hwy/cache_control.h"

namespace dlprim {
namespace {

constexpr std::size_t kLine = 64;

void fetch(const float* pixel, std::size_t bytes) {
    const auto* const first = reinterpret_cast<const char*>(pixel);
    for (std::size_t line = 0; line < bytes; line += kLine) hwy::Prefetch(first + line);
}

}  // namespace

PixelGatherer::PixelGatherer(const ConvProblem& problem)
    : shape_(problem.shape),
      blocks_(src_blocks(shape_)),
      src_(activation_strides(problem.layout, blocks_, shape_.H, shape_.W)),
      block_bytes_(shape_.P() * shape_.Q() * blocks_.block * size_of(DType::f32)) {}

void PixelGatherer::gather_block(std::int64_t image, std::int64_t block, const void* src,
                                 char* out) const {
    const std::int64_t group = block / blocks_.per_group();
    const std::int64_t within = block % blocks_.per_group();
    const float* const channels = static_cast<const float*>(src) + image * src_.image +
                                  group * src_.group + within * src_.block;
    const auto bytes = static_cast<std::size_t>(blocks_.in_block(within) * size_of(DType::f32));
    const std::int64_t row = shape_.stride_h * src_.row;
    auto* to = reinterpret_cast<float*>(out + block * block_bytes_);
    for (std::int64_t p = 0; p < shape_.P(); ++p) {
        const float* from = channels + p * row;
        const std::int64_t below = p + 1 < shape_.P() ? row : 0;
        for (std::int64_t q = 0; q < shape_.Q(); ++q) {
            fetch(from + below, bytes);
            std::memcpy(to, from, bytes);
            from += shape_.stride_w * src_.pixel;
            to += blocks_.block;
        }
    }
}

}  // namespace dlprim
