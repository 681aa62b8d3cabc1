#include "primitives/conv/conv2d.h"

namespace dlprim {

Activations Conv2d::dst_activations() const {
    const ConvShape& shape = spec_.shape;
    return {shape.N, shape.P(), shape.Q(), dst_blocks(shape), spec_.dtype};
}

void Conv2d::backward_relu(ReluBackward problem) const {
    problem.tensor = dst_activations();
    problem.layout = spec_.layout;
    const bool sums = problem.diff_bias != nullptr;
    const WorkspacePool::Lease scratch(*workspaces_, sums ? relu_scratch_bytes() : 0);
    relu_backward(problem, scratch.data());
}

std::int64_t Conv2d::relu_scratch_bytes() const {
    return relu_backward_scratch_bytes(dst_activations(), spec_.layout);
}

}  // namespace dlprim
