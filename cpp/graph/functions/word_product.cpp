#include "graph/functions/word_product.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "brgemm/brgemm.h"
#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

constexpr std::int64_t kColumns = 64;  // of a block

struct WordProduct {
    ArrayCall call;
    std::int64_t rows = 0, depth = 0, columns = 0;
    std::int16_t zero = 0;
    std::shared_ptr<const Brgemm> whole = {}, last = {};  // of a block, of the columns behind

    std::int64_t pairs() const { return (depth + 1) / 2; }

    BrgemmSpec spec(std::int64_t n) const {
        return {.m = rows,
                .n = n,
                .k = 2 * pairs(),
                .lda = 2 * pairs(),
                .ldb = kColumns,
                .ldc = columns,
                .a_type = DType::s16,
                .b_type = DType::s16,
                .c_type = DType::f32,
                .epilogue = {.scale = Scale::column}};
    }

    void run(const Addresses& at) const {
        const WorkspacePool::Lease own(WorkspacePool::lasting(), 4 * rows * pairs());
        auto* const words = reinterpret_cast<std::int16_t*>(own.data());
        const std::uint8_t* const x = at[call.inputs[0]];
        for (std::int64_t row = 0; row < rows; ++row) {
            std::int16_t* const to = words + row * 2 * pairs();
            to[2 * pairs() - 1] = 0;
            for (std::int64_t i = 0; i < depth; ++i) {
                to[i] = static_cast<std::int16_t>(x[row * depth + i] - zero);
            }
        }
        const char* const weights = at[call.inputs[1]];
        const float* const scale = at[call.inputs[2]];
        float* const dst = at[call.outputs[0]];
        const std::int64_t bytes = pairs() * kColumns * 4;
        const WorkOf work(static_cast<double>(2 * rows * depth * columns),
                          static_cast<double>(bytes * (columns / kColumns)));
        parallel_for((columns + kColumns - 1) / kColumns, [&](std::int64_t block) {
            const std::int64_t first = block * kColumns;
            const BrgemmArgs args{.a = words,
                                  .b = weights + block * bytes,
                                  .c = dst + first,
                                  .batch = 1,
                                  .scale = scale + first};
            (first + kColumns <= columns ? *whole : *last)(args);
        });
    }
};

}  // namespace

RunOfCall word_product(const Network& network, const ArrayCall& call) {
    bool fits = call.inputs.size() == 3 && call.outputs.size() == 1;
    WordProduct made{.call = call, .zero = static_cast<std::int16_t>(number_of(call, "zero"))};
    if (fits) {
        const NetworkTensor &x = network.tensor(call.inputs[0]),
                            &weights = network.tensor(call.inputs[1]),
                            &scale = network.tensor(call.inputs[2]),
                            &dst = network.tensor(call.outputs[0]);
        using Shape = std::vector<std::int64_t>;
        fits = x.shape.size() == 2 && dst.shape.size() == 2 && x.shape[0] == dst.shape[0] &&
               x.elements() > 0 && dst.elements() > 0;
        if (fits) {
            made.rows = x.shape[0];
            made.depth = x.shape[1];
            made.columns = dst.shape[1];
        }
        const Shape packed{(made.columns + kColumns - 1) / kColumns, made.pairs(), kColumns, 2};
        fits = fits && x.dtype == "uint8" && weights.dtype == "int16" && weights.shape == packed &&
               scale.dtype == "float32" && scale.shape == Shape{made.columns} &&
               dst.dtype == "float32";
    }
    require_fit(fits, network, call,
                "uint8 (N, K), packed int16, a scale for each column and (N, M)");
    const std::int64_t behind = made.columns % kColumns;
    if (made.columns >= kColumns) made.whole = brgemm(made.spec(kColumns));
    if (behind > 0) made.last = brgemm(made.spec(behind));
    return [made](const Addresses& at) { made.run(at); };
}

}  // namespace dlprim
