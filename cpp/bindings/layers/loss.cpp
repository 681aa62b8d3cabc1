#include <algorithm>
#include <cstdint>
#include <string>

#include "bindings/arrays/array.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/register.h"
#include "primitives/layers/embedding.h"
#include "primitives/layers/softmax_cross_entropy.h"
#include "primitives/tensor/workspace.h"

namespace dlprim::bindings {
namespace {

// Python's functions have checked shapes, types and overlap; the values of indices are checked
// here, before anything is written.
using Indices = py::array_t<std::int64_t, py::array::c_style>;

// Indices in [0, end), or `ignored`, as they were when the call began: another thread may write to
// the array while it runs.
class CheckedIndices {
public:
    CheckedIndices(const char* name, const Indices& indices, std::int64_t end,
                   const std::int64_t* ignored)
        : many_(WorkspacePool::lasting(), indices.size() > kFew ? indices.nbytes() : 0),
          data_(indices.size() > kFew ? reinterpret_cast<std::int64_t*>(many_.data()) : few_) {
        std::copy_n(indices.data(), indices.size(), data_);
        for (std::int64_t i = 0; i < indices.size(); ++i) {
            const std::int64_t value = data_[i];
            if ((value >= 0 && value < end) || (ignored != nullptr && value == *ignored)) continue;
            throw py::value_error(std::string(name) + " holds " + std::to_string(value) +
                                  ", expected values in [0, " + std::to_string(end) + ")");
        }
    }

    const std::int64_t* data() const { return data_; }

private:
    static constexpr std::int64_t kFew = 64;

    std::int64_t few_[kFew];  // NOLINT(modernize-avoid-c-arrays): never cleared
    WorkspacePool::Lease many_;
    std::int64_t* data_;
};

void gather(const Indices& indices, const py::array& weights, py::array& out) {
    const CheckedIndices checked("indices", indices, weights.shape(0), nullptr);
    const std::int64_t row_bytes = weights.shape(1) * weights.itemsize();
    const std::int64_t *const from = checked.data(), count = indices.size();
    const void* const table = weights.data();
    void* const to = out.mutable_data();
    const WithoutGil without_gil;
    gather_rows(from, count, table, row_bytes, to);
}

void scatter(const Indices& indices, const std::string& dtype, const py::array& diff_dst,
             py::array_t<float, py::array::c_style>& out) {
    const CheckedIndices checked("indices", indices, out.shape(0), nullptr);
    const EmbeddingBackward problem{.indices = checked.data(),
                                    .count = indices.size(),
                                    .rows = out.shape(0),
                                    .width = out.shape(1),
                                    .dtype = parse_dtype(dtype),
                                    .diff_dst = diff_dst.data(),
                                    .diff_weights = out.mutable_data()};
    const WithoutGil without_gil;
    embedding_backward(problem);
}

// `terms` is empty, or (weights or None, smoothing, whether it averages, losses of rows or None).
double cross_entropy(const py::array& logits, const std::string& dtype, const Indices& targets,
                     std::int64_t ignored, py::object& out, const py::tuple& terms) {
    const CheckedIndices checked("targets", targets, logits.shape(1), &ignored);
    SoftmaxCrossEntropy problem{.rows = logits.shape(0),
                                .classes = logits.shape(1),
                                .dtype = parse_dtype(dtype),
                                .logits = logits.data(),
                                .targets = checked.data(),
                                .ignored = ignored};
    if (!out.is_none()) problem.diff_logits = out.cast<py::array>().mutable_data();
    if (!terms.empty()) {
        using Floats = py::array_t<float, py::array::c_style>;
        if (!terms[0].is_none()) problem.weights = terms[0].cast<Floats>().data();
        problem.smoothing = terms[1].cast<float>();
        problem.averages = terms[2].cast<bool>();
        if (!terms[3].is_none()) problem.losses = terms[3].cast<Floats>().mutable_data();
    }
    const WithoutGil without_gil;
    return softmax_cross_entropy(problem);
}

}  // namespace

void register_loss(py::module_& module) {
    module.def("gather_rows", gather, py::arg("indices").noconvert(), py::arg("weights"),
               py::arg("out"));
    module.def("embedding_backward", scatter, py::arg("indices").noconvert(), py::arg("dtype"),
               py::arg("diff_dst"), py::arg("out").noconvert());
    module.def("softmax_cross_entropy", cross_entropy, py::arg("logits"), py::arg("dtype"),
               py::arg("targets").noconvert(), py::arg("ignored"), py::arg("out"),
               py::arg("terms"));
}

}  // namespace dlprim::bindings
