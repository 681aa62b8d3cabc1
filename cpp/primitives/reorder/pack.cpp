#include "primitives/reorder/pack.h"

#include <stdexcept>
#include <string>

#include "primitives/reorder/reorder.h"
#include "primitives/reorder/serial_moves.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kPartBytes = 128 * 1024;  // see reorder_plan.cpp

void require_types(const Packing& packing) {
    const bool rounds = packing.from == DType::f32 && packing.to == DType::bf16;
    if ((packing.from != packing.to && !rounds) || packing.to == DType::s32) {
        throw std::invalid_argument("B cannot be packed from " +
                                    std::string(name_of(packing.from)) + " to " +
                                    std::string(name_of(packing.to)));
    }
}

// body(begin, size) for parts of an array whose element is `bytes` long in src.
template <class Body>
void for_parts(std::int64_t count, std::int64_t bytes, const Body& body) {
    const Blocks parts{count, kPartBytes / bytes};
    parallel_for(parts.count(),
                 [&](std::int64_t part) { body(parts.at(part).begin, parts.at(part).size()); });
}

}  // namespace

void pack_b(const Packing& packing) {
    require_types(packing);
    const auto& [from, to, k, n, transposed, src, ld_src, dst, ld_dst, batch, stride_src,
                 stride_dst] = packing;
    const std::int64_t group = elements_per_word(to);
    const std::int64_t b_src = stride_src / size_of(from), b_dst = stride_dst / size_of(to);
    const Layout plain{.dtype = from,
                       .dimensions = {{'b', batch, {{batch, b_src}}},
                                      {'k', k, {{k, transposed ? 1 : ld_src}}},
                                      {'n', n, {{n, transposed ? ld_src : 1}}}}};
    const Layout packed{
        .dtype = to,
        .dimensions = {{'b', batch, {{batch, b_dst}}},
                       {'k', k, {{Blocks{k, group}.count(), ld_dst * group}, {group, 1}}},
                       {'n', n, {{n, group}}}}};
    reorder(plain, src, packed, dst);
}

void round_to_bf16(const float* src, std::uint16_t* dst, std::int64_t count) {
    for_parts(count, size_of(DType::f32), [&](std::int64_t begin, std::int64_t size) {
        round_row(src + begin, dst + begin, size);
    });
}

void widen_to_f32(const std::uint16_t* src, float* dst, std::int64_t count) {
    for_parts(count, size_of(DType::bf16), [&](std::int64_t begin, std::int64_t size) {
        widen_row(src + begin, dst + begin, size);
    });
}

}  // namespace dlprim
