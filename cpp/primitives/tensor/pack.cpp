#include "primitives/tensor/pack.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "jit/isa.h"
#include "primitives/tensor/pack_rows.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// What a task reads: long enough to hide the cost of starting it (some 5 us for a team of
// threads), short enough to stay in the L2 cache and to give every thread some.
constexpr std::int64_t kTaskBytes = 128 * 1024;
// Rows of a task are a multiple of this: of any group, and of a cache line of transposed columns.
constexpr std::int64_t kTaskRows = 16;

// The rows of one matrix in blocks of about kTaskBytes, the remainder in the last of them.
class Tasks {
public:
    explicit Tasks(const Packing& packing)
        : rows_(packing.transposed ? packing.n : packing.k),
          bytes_(rows_ * (packing.transposed ? packing.k : packing.n) * size_of(packing.from)) {
        const std::int64_t most = std::max<std::int64_t>(rows_ / kTaskRows, 1);
        const std::int64_t wanted = std::clamp<std::int64_t>(bytes_ / kTaskBytes, 1, most);
        block_ = std::max(rows_ / wanted / kTaskRows * kTaskRows, kTaskRows);
    }

    std::int64_t bytes() const { return bytes_; }
    std::int64_t count() const { return std::max<std::int64_t>(rows_ / block_, 1); }
    Range at(std::int64_t index) const {
        return {index * block_, index + 1 == count() ? rows_ : (index + 1) * block_};
    }

private:
    std::int64_t rows_;
    std::int64_t bytes_;
    std::int64_t block_ = 0;
};

void require_types(const Packing& packing) {
    const bool rounds = packing.from == DType::f32 && packing.to == DType::bf16;
    if ((packing.from != packing.to && !rounds) || packing.to == DType::s32) {
        throw std::invalid_argument("B cannot be packed from " +
                                    std::string(name_of(packing.from)) + " to " +
                                    std::string(name_of(packing.to)));
    }
}

Packing matrix_at(const Packing& packing, std::int64_t index) {
    Packing matrix = packing;
    matrix.src = static_cast<const char*>(packing.src) + index * packing.stride_src;
    matrix.dst = static_cast<char*>(packing.dst) + index * packing.stride_dst;
    return matrix;
}

// body(begin, size) for parts of an array whose element is `bytes` long in src.
template <class Body>
void for_parts(std::int64_t count, std::int64_t bytes, const Body& body) {
    const Blocks parts{count, kTaskBytes / bytes};
    parallel_for(parts.count(),
                 [&](std::int64_t part) { body(parts.at(part).begin, parts.at(part).size()); });
}

}  // namespace

void pack_b(const Packing& packing) {
    require_types(packing);
    if (packing.k == 0 || packing.n == 0) return;
    const Isa isa = usable_isa();
    const PackFunction pack =
        packing.transposed ? transpose_function(isa) : row_functions(isa).pack;
    const Tasks tasks(packing);
    // Small matrices go to a task by the dozen.
    const std::int64_t several = tasks.count() > 1 ? 1 : 1 + kTaskBytes / tasks.bytes();
    const Blocks matrices{packing.batch, several};
    parallel_for(matrices.count() * tasks.count(), [&](std::int64_t task) {
        const Range range = matrices.at(task / tasks.count());
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            pack(matrix_at(packing, i), tasks.at(task % tasks.count()));
        }
    });
}

void round_to_bf16(const float* src, std::uint16_t* dst, std::int64_t count) {
    const auto round = row_functions(usable_isa()).round;
    for_parts(count, size_of(DType::f32), [&](std::int64_t begin, std::int64_t size) {
        round(src + begin, dst + begin, size);
    });
}

void widen_to_f32(const std::uint16_t* src, float* dst, std::int64_t count) {
    const auto widen = row_functions(usable_isa()).widen;
    for_parts(count, size_of(DType::bf16), [&](std::int64_t begin, std::int64_t size) {
        widen(src + begin, dst + begin, size);
    });
}

}  // namespace dlprim
