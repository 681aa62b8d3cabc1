// A product of matrices, ready to run: the cheapest way, its packings, and the nest around the
// kernel.
#pragma once

#include <memory>
#include <string>

#include "primitives/formulas/product_mapping.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/reorder/reorder.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class ProductPass {
public:
    // By a way that exists.
    ProductPass(const StridedProduct& product, const ProductWay& way);

    // First elements of the arrays, as the statement has them. Results must not overlap operands.
    // The same bits for any number of threads.
    void run(const void* a, const void* b, void* c) const;

    const ScheduledNest& nest() const { return nest_; }
    std::string described() const;

private:
    // From the array to what the kernel reads or writes.
    struct Packing {
        explicit Packing(const std::optional<PackedOperand>& operand, bool unpacks = false);

        const void* pack(const void* plain, char* scratch) const;

        std::optional<Reorder> reorder = {};
        std::int64_t bytes = 0;  // of scratch
    };

    StridedProduct product_;
    ProductWay way_;
    ProductMapping mapping_;
    Packing a_;
    Packing b_;
    Packing c_;
    ScheduledPass nest_;
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
