#include "primitives/layers/elementwise.h"

#include <array>
#include <memory>

#include "primitives/programs/row_tasks.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

constexpr std::array kOperations = {Elementwise::relu, Elementwise::sum, Elementwise::sum_relu,
                                    Elementwise::relu_backward};

RowSpec program_of(Elementwise operation, DType dtype) {
    RowBuilder row;
    const RowValue first = row.tensor(dtype);
    if (operation == Elementwise::relu) {
        row.store(dtype, activated(Activation::relu, first));
        return row.spec();
    }
    const RowValue second = row.tensor(dtype);
    switch (operation) {
        case Elementwise::relu_backward:
            row.store(dtype, select(second <= 0.0F, 0.0F, first));
            break;
        case Elementwise::sum_relu:
            row.store(dtype, activated(Activation::relu, first + second));
            break;
        default: row.store(dtype, first + second);
    }
    return row.spec();
}

using Kernels = std::array<std::shared_ptr<const RowKernel>, kOperations.size()>;

// Held, as a call may take less time than looking a program up.
const RowKernel& kernel_of(Elementwise operation, DType dtype) {
    static const std::array<Kernels, 2> all = [] {
        std::array<Kernels, 2> made;
        for (const Elementwise each : kOperations) {
            const auto i = static_cast<std::size_t>(each);
            made[0][i] = row_kernel(program_of(each, DType::f32));
            made[1][i] = row_kernel(program_of(each, DType::bf16));
        }
        return made;
    }();
    return *all[dtype == DType::f32 ? 0 : 1][static_cast<std::size_t>(operation)];
}

}  // namespace

void run_elementwise(Elementwise operation, DType dtype, const ElementwiseOperands& operands) {
    RowArgs args{.rows = 1, .columns = operands.count};
    args.operands[0].data = const_cast<void*>(operands.first);
    args.operands[1].data = const_cast<void*>(operands.second);
    args.operands[operation == Elementwise::relu ? 1 : 2].data = operands.out;
    run_rows(kernel_of(operation, dtype), args);
}

}  // namespace dlprim
