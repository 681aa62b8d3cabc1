#include "primitives/layers/listed_rows.h"

#include <memory>

#include "rows/row_builder.h"
#include "rows/row_kernel.h"

namespace dlprim {
namespace {

std::shared_ptr<const RowKernel> sum_kernel() {
    RowBuilder row;
    const RowValue x = row.listed(DType::f32), total = row.carried(0);
    row.carry(total, multiply_add(x, row.number(), total));
    row.store(DType::f32, last(total));
    return row_kernel(row.spec());
}

}  // namespace

void sum_listed(const ListedSums& it) {
    static const auto& kernel = *new auto(sum_kernel());
    RowArgs args{.list = it.list, .counts = it.counts, .rows = it.results, .columns = it.columns};
    args.operands[0] = {const_cast<float*>(it.rows), 0};
    args.operands[1] = {it.dst, it.columns * size_of(DType::f32)};
    (*kernel)(args);
}

}  // namespace dlprim
