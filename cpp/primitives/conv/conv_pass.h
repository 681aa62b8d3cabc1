// One pass of a convolution as an object: everything that its shape decides is found out when it is
// made, so that a call looks up a plan, takes scratch and runs. Which kind of pass it is, direct,
// Winograd or depthwise, only its maker knows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "primitives/conv/conv_spec.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class ConvPass {
public:
    virtual ~ConvPass() = default;

    virtual void run(const ConvTensors& tensors) const = 0;

    // The most bytes beside operands and results that a call uses with the present number of
    // threads.
    virtual std::int64_t scratch_bytes() const = 0;

    // Null: a fixed nest without a kernel.
    virtual ScheduledNest* nest() const { return nullptr; }

    // Of Winograd: floats of the transformed weights, and packed weights to those.
    virtual std::int64_t transformed_floats() const { return 0; }
    virtual void transform_weights(const void* /*weights*/, float* /*transformed*/) const {}

protected:
    ConvPass() = default;
    ConvPass(const ConvPass&) = delete;
    ConvPass& operator=(const ConvPass&) = delete;

    WorkspacePool& workspaces() const { return *workspaces_; }

private:
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
