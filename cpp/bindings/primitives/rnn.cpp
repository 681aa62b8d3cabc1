#include "primitives/rnn/rnn.h"

#include <memory>
#include <string>
#include <vector>

#include "bindings/primitives/primitive.h"
#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

RnnCell parse_cell(const std::string& name) {
    if (name == name_of(RnnCell::lstm)) return RnnCell::lstm;
    if (name == name_of(RnnCell::gru)) return RnnCell::gru;
    throw py::value_error("cell is '" + name + "', expected 'lstm' or 'gru'");
}

// A copy: what was checked here must not change while others have the GIL.
std::vector<std::int64_t> lengths_in(const NamedCall& call, const RnnShape& shape) {
    const py::object array = call.at("lengths");
    if (array.is_none()) return {};
    using Integers = py::array_t<std::int64_t, py::array::c_style>;
    if (!py::isinstance<Integers>(array)) {
        throw py::type_error("lengths has another type, expected a C-contiguous int64 array");
    }
    const auto given = py::reinterpret_borrow<Integers>(array);
    if (given.ndim() != 1 || given.shape(0) != shape.N) {
        throw py::value_error("lengths has shape " + std::string(py::str(given.attr("shape"))) +
                              ", expected (" + std::to_string(shape.N) + ",)");
    }
    const std::vector<std::int64_t> lengths(given.data(), given.data() + shape.N);
    for (std::size_t n = 0; n < lengths.size(); ++n) {
        if (lengths[n] >= 0 && lengths[n] <= shape.T) continue;
        throw py::value_error("lengths[" + std::to_string(n) + "] is " +
                              std::to_string(lengths[n]) +
                              ", expected an integer from 0 to T = " + std::to_string(shape.T));
    }
    return lengths;
}

class PyRnn {
public:
    explicit PyRnn(const RnnShape& shape) : rnn_(shape), forms_(rnn_forms(shape)) {}

    py::dict forward(const py::dict& arrays, bool training) const {
        NamedCall named(forms_, arrays, pool_.get());
        RnnForward tensors{.src = named.required("src")};
        tensors.weights.w_ih = named.required("packed_w_ih");
        tensors.weights.w_hh = named.required("packed_w_hh");
        tensors.weights.bias = named.required_floats("packed_bias");
        tensors.h_0 = named.optional("h_0");
        if (is_lstm()) tensors.c_0 = named.optional_floats("c_0");
        const std::vector<std::int64_t> lengths = lengths_in(named, rnn_.shape());
        if (!lengths.empty()) tensors.lengths = lengths.data();
        tensors.dst = named.result("dst").data;
        tensors.h_n = named.result("h_n").data;
        if (is_lstm()) tensors.c_n = named.result("c_n").floats();
        if (training) {
            tensors.saved.gates = named.result("gates").floats();
            (is_lstm() ? tensors.saved.cells : tensors.saved.hidden_n) =
                named.result(is_lstm() ? "cells" : "hidden_n").floats();
        }
        return named.run([&] { rnn_.forward(tensors); });
    }

    py::dict backward(const py::dict& arrays) const {
        NamedCall named(forms_, arrays, pool_.get());
        RnnBackward tensors{.diff_dst = named.required("diff_dst"),
                            .diff_h_n = named.optional("diff_h_n")};
        if (is_lstm()) tensors.diff_c_n = named.optional_floats("diff_c_n");
        tensors.weights.w_ih_transposed = named.required("transposed_w_ih");
        tensors.weights.w_hh_transposed = named.required("transposed_w_hh");
        tensors.src = named.required("src");
        tensors.h_0 = named.optional("h_0");
        if (is_lstm()) tensors.c_0 = named.optional_floats("c_0");
        const std::vector<std::int64_t> lengths = lengths_in(named, rnn_.shape());
        if (!lengths.empty()) tensors.lengths = lengths.data();
        tensors.dst = named.required("dst");
        tensors.saved.gates = named.required_floats("gates");
        (is_lstm() ? tensors.saved.cells : tensors.saved.hidden_n) =
            named.required_floats(is_lstm() ? "cells" : "hidden_n");
        tensors.diff_src = named.result("diff_src").data;
        tensors.diff_h_0 = named.result("diff_h_0").data;
        if (is_lstm()) tensors.diff_c_0 = named.result("diff_c_0").floats();
        tensors.diff_w_ih = named.result("diff_w_ih").floats();
        tensors.diff_w_hh = named.result("diff_w_hh").floats();
        tensors.diff_b_ih = named.result("diff_b_ih").floats();
        tensors.diff_b_hh = named.result("diff_b_hh").floats();
        return named.run([&] { rnn_.backward(tensors); });
    }

    py::dict pack_weights(const py::dict& arrays) const {
        NamedCall named(forms_, arrays);
        const RnnWeights plain{.w_ih = named.required("w_ih"),
                               .w_hh = named.required("w_hh"),
                               .b_ih = named.optional_floats("b_ih"),
                               .b_hh = named.optional_floats("b_hh")};
        RnnPackedWeights packed;
        packed.w_ih = named.result("packed_w_ih").data;
        packed.w_hh = named.result("packed_w_hh").data;
        packed.bias = named.result("packed_bias").floats();
        return named.run([&] { dlprim::pack_weights(rnn_.shape(), plain, packed); });
    }

    py::dict transpose_weights(const py::dict& arrays) const {
        NamedCall named(forms_, arrays);
        RnnPackedWeights packed;
        packed.w_ih = named.required("packed_w_ih");
        packed.w_hh = named.required("packed_w_hh");
        packed.w_ih_transposed = named.result("transposed_w_ih").data;
        packed.w_hh_transposed = named.result("transposed_w_hh").data;
        return named.run([&] { dlprim::transpose_weights(rnn_.shape(), packed); });
    }

    const Rnn& core() const { return rnn_; }
    Rnn& core() { return rnn_; }

private:
    bool is_lstm() const { return rnn_.shape().cell == RnnCell::lstm; }

    Rnn rnn_;
    Forms forms_;
    std::shared_ptr<ArrayPool> pool_ = std::make_shared<ArrayPool>();
};

std::unique_ptr<PyRnn> make_rnn(const std::string& cell, const py::sequence& extents,
                                const std::string& dtype, bool reverse) {
    const Shape values = shape_from(extents);
    if (values.size() != 4) {
        throw py::value_error("extents has " + std::to_string(values.size()) +
                              " values, expected T, N, C and K");
    }
    return std::make_unique<PyRnn>(RnnShape{.cell = parse_cell(cell),
                                            .T = values[0],
                                            .N = values[1],
                                            .C = values[2],
                                            .K = values[3],
                                            .dtype = parse_dtype(dtype),
                                            .reverse = reverse});
}

py::dict rnn_scratch_bytes(const PyRnn& rnn) {
    py::dict bytes;
    bytes["inference"] = rnn.core().forward_scratch_bytes();
    bytes["forward"] = rnn.core().forward_scratch_bytes();
    bytes["backward"] = rnn.core().backward_scratch_bytes();
    return bytes;
}

}  // namespace

void register_rnn(py::module_& module) {
    py::class_<PyRnn> type(module, "Rnn");
    type.def(py::init(&make_rnn))
        .def("forward", &PyRnn::forward)
        .def("backward", &PyRnn::backward)
        .def("pack_weights", &PyRnn::pack_weights)
        .def("transpose_weights", &PyRnn::transpose_weights)
        .def_property_readonly("flops", [](const PyRnn& rnn) { return rnn.core().shape().flops(); })
        .def_property_readonly("scratch_bytes", rnn_scratch_bytes);
    define_schedules(type, kRnnPasses, [](const Rnn&) { return kRnnPasses; });
}

}  // namespace dlprim::bindings
