#include "primitives/linear/word_product.h"

#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

std::shared_ptr<const Brgemm> kernel_of(const WordProductShape& shape, std::int64_t n) {
    if (n == 0) return nullptr;
    return brgemm({.m = shape.rows,
                   .n = n,
                   .k = 2 * shape.pairs(),
                   .lda = 2 * shape.pairs(),
                   .ldb = WordProductShape::kColumns,
                   .ldc = shape.columns,
                   .a_type = DType::s16,
                   .b_type = DType::s16,
                   .c_type = DType::f32,
                   .epilogue = {.scale = Scale::column}});
}

}  // namespace

WordProduct::WordProduct(const WordProductShape& shape, std::int16_t zero)
    : shape_(shape),
      zero_(zero),
      whole_(kernel_of(shape, shape.columns < shape.kColumns ? 0 : shape.kColumns)),
      last_(kernel_of(shape, shape.columns % shape.kColumns)) {}

void WordProduct::run(const std::uint8_t* x, const std::int16_t* weights, const float* scale,
                      float* dst) const {
    const std::int64_t row_words = 2 * shape_.pairs();
    const WorkspacePool::Lease own(WorkspacePool::lasting(), 2 * shape_.rows * row_words);
    auto* const words = reinterpret_cast<std::int16_t*>(own.data());
    for (std::int64_t row = 0; row < shape_.rows; ++row) {
        std::int16_t* const to = words + row * row_words;
        to[row_words - 1] = 0;
        for (std::int64_t i = 0; i < shape_.depth; ++i) {
            to[i] = static_cast<std::int16_t>(x[row * shape_.depth + i] - zero_);
        }
    }
    const std::int64_t block_words = row_words * shape_.kColumns;
    const WorkOf work(static_cast<double>(2 * shape_.rows * shape_.depth * shape_.columns),
                      static_cast<double>(2 * block_words * shape_.blocks()));
    parallel_for(shape_.blocks(), [&](std::int64_t block) {
        const std::int64_t first = block * shape_.kColumns;
        const BrgemmArgs args{.a = words,
                              .b = weights + block * block_words,
                              .c = dst + first,
                              .batch = 1,
                              .scale = scale + first};
        (first + shape_.kColumns <= shape_.columns ? *whole_ : *last_)(args);
    });
}

}  // namespace dlprim
