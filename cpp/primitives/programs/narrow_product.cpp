#include "primitives/programs/narrow_product.h"

#include <algorithm>
#include <vector>

#include "jit/element_reference.h"
#include "jit/machine.h"
#include "primitives/tensor/parallel.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

// Rows of a task, at least, and its products: fewer take less time than a thread needs to begin.
constexpr std::int64_t kTaskRows = 32;
constexpr std::int64_t kTaskProducts = 1 << 16;
// Rows that share what is loaded of the vectors, and sums that have registers.
constexpr std::int64_t kMostTogether = 4;
// Bytes in front of what a row reads that are fetched: hardware follows a few rows late, and memory
// is far away.
constexpr std::int32_t kFetchAhead = 2048;
// Rows side by side where hardware follows so many by itself, and is hindered by help.
constexpr std::int64_t kFollowedRows = 6;

std::int64_t rows_together(std::int64_t vectors) {
    const std::int64_t sums = vector_file(usable_isa()).registers / 2;
    const bool follows = this_machine().follows_many_streams;
    return std::clamp<std::int64_t>(sums / std::max<std::int64_t>(vectors, 1), 1,
                                    follows ? kFollowedRows : kMostTogether);
}

std::int64_t rows_of_task(const NarrowShape& shape) {
    const std::int64_t products = std::max<std::int64_t>(shape.columns * shape.vector_count, 1);
    return std::max(kTaskRows, kTaskProducts / products);
}

}  // namespace

NarrowProduct::NarrowProduct(const NarrowShape& shape)
    : shape_(shape),
      blocks_{shape.columns, std::max<std::int64_t>(shape.block, 1)},
      together_(rows_together(shape.vector_count)),
      sums_{nullptr, shape.out_row_step, shape.out_vector_step},
      tasks_{shape.rows, rows_of_task(shape)} {
    if (shape.block_step == shape.block) blocks_.block = std::max<std::int64_t>(shape.columns, 1);
    if (shape.dtype != DType::f32) sums_ = {nullptr, shape.vector_count, 1};
    const Sums bias{nullptr, shape.bias_row_step, shape.bias_vector_step};
    add_kernels(0, shape.bias ? &bias : nullptr);
    if (blocks_.count() > 1) add_kernels(1, &sums_);
}

// Rows that are left over are summed as those together are; where all are, as fast as they can be.
void NarrowProduct::add_kernels(std::size_t at, const Sums* before) {
    kernels_.at(at)[0] = kernel(together_, before);
    const bool alone = shape_.rows < together_;
    kernels_.at(at)[1] = kernel(1, before, alone ? 0 : kernels_.at(at)[0]->vectors());
}

// Operands: matrix, vectors, what the sums begin with, if anything, and the sums.
std::shared_ptr<const RowKernel> NarrowProduct::kernel(std::int64_t rows, const Sums* before,
                                                       std::int32_t most_vectors) const {
    RowBuilder row;
    if (most_vectors > 0) row.take_at_most(most_vectors);
    if (!this_machine().follows_many_streams) row.fetch_ahead(kFetchAhead);
    const RowValue matrix = row.tensor(shape_.dtype);
    std::vector<RowValue> vectors;
    for (std::int64_t v = 0; v < shape_.vector_count; ++v) vectors.push_back(row.column());
    std::vector<RowValue> sums;
    for (std::int64_t r = 0; r < rows; ++r) {
        const RowValue elements = row.at(matrix, r * shape_.row_step * size_of(shape_.dtype));
        for (const RowValue vector : vectors) sums.push_back(sum(elements * vector));
    }
    const auto for_sums = [&](const Sums& at, const auto& body) {
        for (std::size_t i = 0; i < sums.size(); ++i) {
            const auto r = static_cast<std::int64_t>(i) / shape_.vector_count;
            const auto v = static_cast<std::int64_t>(i) % shape_.vector_count;
            body(sums[i], (r * at.row_step + v * at.vector_step) * kFloat);
        }
    };
    if (before != nullptr) {
        const RowValue first = row.per_row();
        for_sums(*before,
                 [&](RowValue& sum, std::int64_t offset) { sum = sum + row.at(first, offset); });
    }
    const std::uint8_t out = row.result(RowShape::row, DType::f32);
    for_sums(sums_,
             [&](RowValue sum, std::int64_t offset) { row.write(RowOp::store, out, offset, sum); });
    return row_kernel(row.spec());
}

void NarrowProduct::run(const NarrowOperands& operands) const {
    parallel_for(tasks_.count(), [&](std::int64_t task) { run_task(operands, tasks_.at(task)); });
}

std::int64_t NarrowProduct::scratch_bytes() const {
    const std::int64_t rows = std::min(tasks_.block, tasks_.extent);
    return shape_.dtype == DType::f32 ? 0 : num_threads() * rows * shape_.vector_count * kFloat;
}

void NarrowProduct::run_task(const NarrowOperands& operands, Range rows) const {
    const bool narrows = shape_.dtype != DType::f32;
    const std::int64_t count = narrows ? rows.size() * shape_.vector_count : 0;
    const WorkspacePool::Lease scratch(*workspaces_, count * kFloat);
    Sums sums = sums_;
    sums.first = narrows ? reinterpret_cast<float*>(scratch.data())
                         : static_cast<float*>(operands.out) + rows.begin * sums.row_step;
    for (std::int64_t block = 0; block < std::max<std::int64_t>(blocks_.count(), 1); ++block) {
        add_block(operands, block, rows, sums);
    }
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = rows.begin + i / shape_.vector_count;
        const std::int64_t to =
            row * shape_.out_row_step + i % shape_.vector_count * shape_.out_vector_step;
        set_element(shape_.dtype, operands.out, to, sums.first[i]);
    }
}

void NarrowProduct::add_block(const NarrowOperands& it, std::int64_t block, Range rows,
                              const Sums& sums) const {
    const std::int64_t size = size_of(shape_.dtype);
    for (std::int64_t row = rows.begin; row < rows.end;) {
        const bool single = rows.end - row < together_;
        const std::int64_t together = single ? 1 : together_;
        RowArgs args;
        args.rows = (rows.end - row) / together;
        args.columns = blocks_.at(block).size();
        auto* next = args.operands.data();
        const auto* const matrix = static_cast<const char*>(it.matrix) +
                                   (row * shape_.row_step + block * shape_.block_step) * size;
        *next++ = {const_cast<char*>(matrix), together * shape_.row_step * size};
        for (std::int64_t v = 0; v < shape_.vector_count; ++v) {
            const float* const vector =
                it.vectors + v * shape_.vector_step + blocks_.at(block).begin;
            *next++ = {const_cast<float*>(vector), 0};
        }
        const RowArgs::Operand to(sums.first + (row - rows.begin) * sums.row_step,
                                  together * sums.row_step * kFloat);
        if (block == 0 && shape_.bias) {
            *next++ = {const_cast<float*>(it.bias) + row * shape_.bias_row_step,
                       together * shape_.bias_row_step * kFloat};
        } else if (block > 0) {
            *next++ = to;
        }
        *next++ = to;
        (*kernels_.at(block > 0 ? 1 : 0).at(single ? 1 : 0))(args);
        row += args.rows * together;
    }
}

}  // namespace dlprim
