#include "primitives/linear/plain_linear.h"

#include <array>
#include <string>

#include "primitives/layers/activation_backward.h"
#include "primitives/products/product_run.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

// A matrix and the index of each of its dimensions.
struct IndexedMatrix {
    const char* indices;  // "nc"
    MatrixStrides strides;
};

class Statements {
public:
    explicit Statements(const PlainLinearSpec& spec) : spec_(spec) {}

    // c = sum of a * b over what c does not have.
    BoundStatement product(const IndexedMatrix& c, const IndexedMatrix& a,
                           const IndexedMatrix& b) const {
        const LinearShape& shape = spec_.shape;
        BoundStatement made{.result = operand(c),
                            .operands = {operand(a), operand(b)},
                            .reduction = Reduction::sum,
                            .value = call_of("*", {read_of(0), read_of(1)})};
        const std::array<std::int64_t, 3> extents = {shape.N, shape.K, shape.C};
        for (std::size_t i = 0; i < extents.size(); ++i) {
            const bool reduced = std::string_view(c.indices).find(kLetters[i]) == kNone;
            made.indices.push_back({std::string(1, kLetters[i]), extents.at(i), reduced});
        }
        return made;
    }

    // y = activation(y + bias)
    std::vector<NextStatement> end(const IndexedMatrix& y) const {
        if (!spec_.bias && spec_.activation == Activation::none) return {};
        NextStatement made{.statement = {.indices = {{"n", spec_.shape.N}, {"k", spec_.shape.K}},
                                         .result = {spec_.dtype, 0, {y.strides.row, 1}}},
                           .is_result = {true}};
        BoundStatement& it = made.statement;
        it.operands = {it.result};
        it.value = read_of(0);
        if (spec_.bias) {
            made.is_result.push_back(false);
            it.operands.push_back({DType::f32, 0, {0, 1}});
            it.value = call_of("+", {it.value, read_of(1)});
        }
        if (spec_.activation != Activation::none) {
            it.value = call_of(std::string(name_of(spec_.activation)), {it.value});
        }
        return {made};
    }

private:
    static constexpr std::string_view kLetters = "nkc";
    static constexpr std::size_t kNone = std::string_view::npos;

    BoundOperand operand(const IndexedMatrix& matrix) const {
        BoundOperand made{.dtype = spec_.dtype, .strides = {0, 0, 0}};
        made.strides[kLetters.find(matrix.indices[0])] = matrix.strides.row;
        made.strides[kLetters.find(matrix.indices[1])] = matrix.strides.column;
        return made;
    }

    const PlainLinearSpec& spec_;
};

// Of all operands.
double bytes_of(const PlainLinearSpec& spec) {
    const LinearShape& shape = spec.shape;
    const std::int64_t elements = shape.N * shape.C + shape.C * shape.K + shape.N * shape.K;
    return static_cast<double>(elements * size_of(spec.dtype));
}

}  // namespace

void PlainLinear::forward(const PlainLinearForward& it) const {
    const WorkOf work(spec_.shape.flops(), bytes_of(spec_));
    std::call_once(forward_made_, [&] {
        const Statements made(spec_);
        const IndexedMatrix y{"nk", dense_rows(spec_.shape.K)};
        forward_ = std::make_shared<const ProductRun>(
            BoundProduct{.statement = made.product(y, {"nc", spec_.src}, {"kc", spec_.weights}),
                         .next = made.end(y)});
    });
    forward_->run(std::array<const void*, 3>{it.src, it.weights, it.bias}, it.dst);
}

void PlainLinear::backward(const PlainLinearGradients& it) const {
    const WorkOf work(2 * spec_.shape.flops(), 2 * bytes_of(spec_));
    const LinearShape& shape = spec_.shape;
    std::call_once(backward_made_, [&] {
        const Statements made(spec_);
        const IndexedMatrix dy{"nk", dense_rows(shape.K)};
        const MatrixStrides rows = dense_rows(shape.C);
        data_ = std::make_shared<const ProductRun>(
            BoundProduct{.statement = made.product({"nc", rows}, dy, {"kc", spec_.weights})});
        weights_ = std::make_shared<const ProductRun>(
            BoundProduct{.statement = made.product({"kc", rows}, dy, {"nc", spec_.src})});
    });
    const bool activates = spec_.activation != Activation::none;
    ActivationBackward gradient{.tensor = linear_activations(shape.N, shape.K, spec_.dtype),
                                .layout = Format::nhwc,
                                .activation = spec_.activation,
                                .diff_dst = it.diff_dst,
                                .saved = it.saved,
                                .diff_bias = it.diff_bias};
    const std::int64_t bytes = activates ? aligned(shape.N * shape.K * size_of(spec_.dtype)) : 0;
    const WorkspacePool::Lease scratch(
        *workspaces_, bytes + activation_backward_scratch_bytes(gradient.tensor, gradient.layout));
    if (activates) gradient.out = scratch.data();
    activation_backward(gradient, scratch.data() + bytes);
    const void* const passed = activates ? gradient.out : it.diff_dst;
    data_->run(std::array{passed, it.weights}, it.diff_src);
    weights_->run(std::array{passed, it.src}, it.diff_weights);
}

}  // namespace dlprim
