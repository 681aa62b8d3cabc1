// Attention as steps of a network: values of four axes whose last one is dense.
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include <pybind11/stl.h>

#include "bindings/graph/network.h"
#include "bindings/register.h"
#include "primitives/attention/attention.h"
#include "primitives/attention/attention_backward.h"
#include "primitives/attention/byte_attention.h"

namespace dlprim::bindings {
namespace {

// Scale, softcap, whether it is causal, and the window, 0 where there is none.
using AttentionNumbers = std::tuple<float, float, bool, std::int64_t>;
// Type, scale and zero point of q, k, v and weights, and of scores and dst where those are bytes.
using AttentionSteps = std::map<std::string, std::tuple<std::string, float, std::int32_t>>;

DType attention_type(const NetworkTensor& tensor) {
    if (tensor.dtype == "bool") return DType::u8;
    return parse_dtype(tensor.dtype);
}

constexpr std::size_t kAttentionAxes = 4;
constexpr std::size_t kRecent = 8;

// Elements from one to the next, of a value (N, H, rows, size); none along axes of one element.
AttentionStrides attention_strides(const NetworkTensor& tensor) {
    const auto stride = [&](std::size_t axis) {
        return tensor.shape[axis] <= 1 ? 0 : tensor.strides[axis] / tensor.element;
    };
    return {stride(0), stride(1), stride(2)};
}

// Of the values q, k, v, mask, and of the result or its gradient.
AttentionSpec attention_spec(const StepValues& step, const char* out) {
    for (const char* name : {"q", "k", "v", out}) {
        if (step.tensor(name).shape.size() != kAttentionAxes)
            step.refuse("a value has not the four axes N, H, rows, size");
    }
    const NetworkTensor& q = step.tensor("q");
    const NetworkTensor& k = step.tensor("k");
    const NetworkTensor& v = step.tensor("v");
    AttentionSpec spec{.batch = q.shape[0],
                       .heads = q.shape[1],
                       .kv_heads = k.shape[1],
                       .queries = q.shape[2],
                       .keys = k.shape[2],
                       .head_size = q.shape[3],
                       .value_size = v.shape[3],
                       .q = attention_strides(q),
                       .k = attention_strides(k),
                       .v = attention_strides(v),
                       .out = attention_strides(step.tensor(out))};
    if (step.number("mask") >= 0) {
        spec.mask_type = attention_type(step.tensor("mask"));
        spec.mask = attention_strides(step.tensor("mask"));
    }
    return spec;
}

template <class Core>
void add_attention_run(StepValues& step, std::shared_ptr<const Core> core, double flops) {
    const int q = step.read("q"), k = step.read("k"), v = step.read("v");
    const int mask = step.number("mask") < 0 ? -1 : step.read("mask");
    const int fill = step.number("fill") < 0 ? -1 : step.read("fill");
    const int dst = step.write("dst");
    step.add(
        [=](const Addresses& at) {
            core->forward({.q = at[q],
                           .k = at[k],
                           .v = at[v],
                           .mask = at[mask],
                           .out = at[dst],
                           .fill = at[fill]});
        },
        flops);
}

// The layers of a network are alike: they share what the last few were made with.
template <class Core, class Spec>
std::shared_ptr<const Core> shared_core(const Spec& spec) {
    static std::deque<std::pair<Spec, std::weak_ptr<const Core>>> recent;
    for (const auto& [like, weak] : recent) {  // the GIL is held
        std::shared_ptr<const Core> known = like == spec ? weak.lock() : nullptr;
        if (known) return known;
    }
    auto made = std::make_shared<const Core>(spec);
    recent.emplace_front(spec, made);
    if (recent.size() > kRecent) recent.pop_back();
    return made;
}

void add_attention(PyNetwork& network, const std::string& label, const AttentionNumbers& settings,
                   const py::kwargs& values) {
    StepValues step(network, "attention", label, values);
    AttentionSpec spec = attention_spec(step, "dst");
    spec.dtype = attention_type(step.tensor("q"));
    const DType stored = attention_type(step.tensor("k"));
    if (stored != spec.dtype) spec.stored = stored;
    std::tie(spec.scale, spec.softcap, spec.causal, spec.window) = settings;
    if (step.number("fill") >= 0) {
        const NetworkTensor& fill = step.tensor("fill");
        if (fill.dtype != "int64" || !fill.is_dense() || fill.elements() != spec.batch)
            step.refuse("fill is " + fill.described() + ", expected N numbers in int64");
        spec.is_filled = true;
    }
    add_attention_run(step, shared_core<Attention>(spec), spec.flops());
}

void add_attention_backward(PyNetwork& network, const std::string& label,
                            const AttentionNumbers& settings, const py::kwargs& values) {
    StepValues step(network, "attention_backward", label, values);
    AttentionBackwardSpec spec{.forward = attention_spec(step, "dy"),
                               .diff_q = attention_strides(step.tensor("dq")),
                               .diff_k = attention_strides(step.tensor("dk")),
                               .diff_v = attention_strides(step.tensor("dv"))};
    spec.forward.dtype = attention_type(step.tensor("q"));
    std::tie(spec.forward.scale, spec.forward.softcap, spec.forward.causal, spec.forward.window) =
        settings;
    const auto core = shared_core<AttentionBackward>(spec);
    const int q = step.read("q"), k = step.read("k"), v = step.read("v"), dy = step.read("dy");
    const int mask = step.number("mask") < 0 ? -1 : step.read("mask");
    const int dq = step.write("dq"), dk = step.write("dk"), dv = step.write("dv");
    step.add(
        [=](const Addresses& at) {
            core->run({.q = at[q],
                       .k = at[k],
                       .v = at[v],
                       .mask = at[mask],
                       .diff_out = at[dy],
                       .diff_q = at[dq],
                       .diff_k = at[dk],
                       .diff_v = at[dv]});
        },
        spec.flops());
}

std::optional<ByteSteps> byte_steps(const AttentionSteps& all, const char* name) {
    const auto found = all.find(name);
    if (found == all.end()) return {};
    const auto& [type, scale, zero_point] = found->second;
    return ByteSteps{.type = parse_dtype(type), .scale = scale, .zero_point = zero_point};
}

// k may also lie with its keys next to each other.
void add_byte_attention(PyNetwork& network, const std::string& label, const AttentionSteps& all,
                        const std::tuple<float, bool>& settings, const py::kwargs& values) {
    StepValues step(network, "byte_attention", label, values);
    ByteAttentionSpec spec{.shape = attention_spec(step, "dst"),
                           .q = byte_steps(all, "q").value(),
                           .k = byte_steps(all, "k").value(),
                           .v = byte_steps(all, "v").value(),
                           .scores = byte_steps(all, "scores"),
                           .weights = byte_steps(all, "weights").value(),
                           .out = byte_steps(all, "dst")};
    std::tie(spec.shape.scale, spec.shape.causal) = settings;
    const NetworkTensor& k = step.tensor("k");
    spec.keys_are_columns = k.shape[3] > 1 && k.strides[3] != 1;
    if (spec.keys_are_columns) spec.shape.k.row = k.strides[3];
    add_attention_run(step, std::make_shared<const ByteAttention>(spec), spec.shape.flops());
}

}  // namespace

void register_attention_steps(py::module_& module) {
    network_type(module)
        .def("attention", &add_attention)
        .def("attention_backward", &add_attention_backward)
        .def("byte_attention", &add_byte_attention);
}

}  // namespace dlprim::bindings
