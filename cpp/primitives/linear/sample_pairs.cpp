#include "primitives/linear/sample_pairs.h"

#include <algorithm>

#include "jit/isa.h"
#include "primitives/linear/linear_layout.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// Samples of a task, an even number.
constexpr std::int64_t kSamples = 512;

}  // namespace

void pack_sample_pairs(const Activations& tensor, Format layout, const void* samples, void* pairs) {
    const ChannelBlocks& blocks = tensor.blocks;
    const std::int64_t N = tensor.width;
    const SampleStrides from = sample_strides(layout, N, blocks);
    const std::int64_t to_block = (N + 1) / 2 * 2 * blocks.block;
    const Blocks parts{N, kSamples};
    const PackFunction pack = row_functions(usable_isa()).pack;
    parallel_for(blocks.count() * parts.count(), [&](std::int64_t task) {
        const std::int64_t block = task / parts.count();
        const Range part = parts.at(task % parts.count());
        pack({.from = tensor.dtype,
              .to = tensor.dtype,
              .k = part.size(),
              .n = std::min(blocks.block, blocks.channels - block * blocks.block),
              .src = static_cast<const std::uint16_t*>(samples) + block * from.block +
                     part.begin * from.sample,
              .ld_src = from.sample,
              .dst =
                  static_cast<std::uint16_t*>(pairs) + block * to_block + part.begin * blocks.block,
              .ld_dst = blocks.block},
             {0, part.size()});
    });
}

}  // namespace dlprim
