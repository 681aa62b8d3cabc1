#include "graph/elements/scatter_step.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "graph/elements/gather_step.h"
#include "graph/network.h"
#include "primitives/layers/embedding.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

struct Scattering {
    ScatteredValues values;
    EmbeddingBackward problem;
    std::shared_ptr<WorkspacePool> workspaces = WorkspacePool::shared();

    template <class Index>
    void run(const Addresses& at) const {
        const auto bytes = static_cast<std::int64_t>(sizeof(std::int64_t));
        const WorkspacePool::Lease own(*workspaces, problem.count * bytes);
        auto* const places = reinterpret_cast<std::int64_t*>(own.data());
        // Copied before they are checked: whoever owns the array may write to it meanwhile.
        const Index* const given = at[values.indices];
        std::copy_n(given, problem.count, places);
        for (std::int64_t i = 0; i < problem.count; ++i) {
            const std::int64_t index = places[i];
            if (index < (values.argument.empty() ? -problem.rows : 0) || index >= problem.rows) {
                refuse_index(values.argument, index, problem.rows);
            }
            places[i] = index < 0 ? index + problem.rows : index;
        }
        EmbeddingBackward whole = problem;
        whole.indices = places;
        whole.diff_dst = at[values.src];
        whole.diff_weights = at[values.dst];
        embedding_backward(whole);
    }
};

}  // namespace

NetworkStep scatter_add_step(const Network& network, const ScatteredValues& values,
                             std::string label) {
    const NetworkTensor &src = network.tensor(values.src),
                        &indices = network.tensor(values.indices),
                        &dst = network.tensor(values.dst);
    std::vector<std::int64_t> shape = indices.shape;
    if (!dst.shape.empty()) shape.insert(shape.end(), dst.shape.begin() + 1, dst.shape.end());
    const bool is_wide = indices.dtype == "int64";
    const bool fits = !dst.shape.empty() && src.shape == shape && dst.dtype == "float32" &&
                      (src.dtype == "float32" || src.dtype == "bfloat16") &&
                      (is_wide || indices.dtype == "int32") && src.is_dense() &&
                      indices.is_dense() && dst.is_dense();
    if (!fits) {
        throw std::invalid_argument("a scatter is of " + src.described() + " at " +
                                    indices.described() + " to " + dst.described() +
                                    ", expected int32 or int64 indices, rows of float32 or "
                                    "bfloat16 and a table of float32, all in C order");
    }
    Scattering it{.values = values, .problem = {}};
    it.problem.count = indices.elements();
    it.problem.rows = dst.shape[0];
    it.problem.width = dst.shape[0] == 0 ? 0 : dst.elements() / dst.shape[0];
    it.problem.dtype = src.dtype == "float32" ? DType::f32 : DType::bf16;
    NetworkStep step{.kind = "scatter_add",
                     .label = std::move(label),
                     .reads = {values.src, values.indices},
                     .writes = {values.dst}};
    if (is_wide) {
        step.run = [it](const Addresses& at) { it.run<std::int64_t>(at); };
    } else {
        step.run = [it](const Addresses& at) { it.run<std::int32_t>(at); };
    }
    return step;
}

}  // namespace dlprim
