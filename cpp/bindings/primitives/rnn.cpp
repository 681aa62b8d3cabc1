#include "primitives/rnn/rnn.h"

#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/primitives/primitive.h"
#include "bindings/primitives/rnn_steps.h"
#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

using namespace py::literals;

RnnCell parse_cell(const std::string& name) {
    for (const RnnCell cell : kRnnCells) {
        if (name == name_of(cell)) return cell;
    }
    throw py::value_error("cell is '" + name + "', expected lstm, gru or rnn");
}

// Functions with alpha and beta, clip, input_forget, peepholes, reset_after.
using PyForm =
    std::tuple<std::vector<std::tuple<std::string, float, float>>, float, bool, bool, bool>;

CellForm parse_form(const PyForm& given) {
    const auto& [functions, clip, input_forget, peepholes, reset_after] = given;
    CellForm form{.clip = clip,
                  .input_forget = input_forget,
                  .peepholes = peepholes,
                  .reset_after = reset_after};
    if (functions.size() > form.functions.size()) {
        throw py::value_error("the form has " + std::to_string(functions.size()) +
                              " functions, expected at most 3");
    }
    for (std::size_t i = 0; i < functions.size(); ++i) {
        const auto& [name, alpha, beta] = functions[i];
        form.functions.at(i) = {parse_gate_curve(name), alpha, beta};
    }
    return form;
}

// Of an array that Python has copied for this call alone, so what was checked stays.
const std::int64_t* lengths_in(const NamedCall& call, const RnnShape& shape) {
    const py::object array = call.at("lengths");
    if (array.is_none()) return nullptr;
    const auto given = py::reinterpret_borrow<py::array_t<std::int64_t>>(array);
    if (given.ndim() != 1 || given.shape(0) != shape.N) {
        throw py::value_error("lengths has shape " + std::string(py::str(given.attr("shape"))) +
                              ", expected (" + std::to_string(shape.N) + ",)");
    }
    require_lengths(shape, given.data());
    return given.data();
}

class PyRnn {
public:
    explicit PyRnn(const RnnShape& shape) : rnn_(shape), forms_(rnn_forms(shape)) {}

    py::dict forward(const py::dict& arrays, bool training) const {
        NamedCall named(forms_, arrays, pool_.get());
        RnnForward tensors;
        take_inputs(named, tensors, {"x", "h_0", "c_0"});
        tensors.weights.w_ih = named.required("packed_w_ih");
        tensors.weights.w_hh = named.required("packed_w_hh");
        tensors.weights.bias = named.required("packed_bias");
        if (rnn_.shape().form.peepholes) tensors.peepholes = named.required("peepholes");
        tensors.dst = named.result("dst", "out");
        tensors.h_n = named.result("h_n");
        if (is_lstm()) tensors.c_n = named.result("c_n");
        if (training) {
            tensors.saved.gates = named.result("gates");
            if (has_state()) beside_gates(tensors.saved) = named.result(beside_gates_name());
        }
        return named.run([&] { rnn_.forward(tensors); });
    }

    py::dict backward(const py::dict& arrays) const {
        NamedCall named(forms_, arrays, pool_.get());
        RnnBackward tensors{.diff_dst = named.required("diff_dst", "dy"),
                            .diff_h_n = named.optional("diff_h_n"),
                            .diff_c_n = named.optional("diff_c_n")};
        take_inputs(named, tensors, {"saved.src", "saved.h_0", "saved.c_0"});
        tensors.weights.w_ih_transposed = named.required("transposed_w_ih");
        tensors.weights.w_hh_transposed = named.required("transposed_w_hh");
        tensors.dst = named.required("dst", "saved.dst");
        tensors.saved.gates = named.required("gates", "saved.gates");
        if (has_state()) {
            beside_gates(tensors.saved) =
                named.required(beside_gates_name(), is_lstm() ? "saved.cells" : "saved.hidden_n");
        }
        tensors.diff_src = named.result("diff_src");
        tensors.diff_h_0 = named.result("diff_h_0");
        if (is_lstm()) tensors.diff_c_0 = named.result("diff_c_0");
        tensors.diff_w_ih = named.result("diff_w_ih");
        tensors.diff_w_hh = named.result("diff_w_hh");
        tensors.diff_b_ih = named.result("diff_b_ih");
        tensors.diff_b_hh = named.result("diff_b_hh");
        return named.run([&] { rnn_.backward(tensors); });
    }

    py::dict pack_weights(const py::dict& arrays) const {
        NamedCall named(forms_, arrays);
        const RnnWeights plain{.w_ih = named.required("w_ih"),
                               .w_hh = named.required("w_hh"),
                               .b_ih = named.optional("b_ih"),
                               .b_hh = named.optional("b_hh")};
        RnnPackedWeights packed;
        packed.w_ih = named.result("packed_w_ih");
        packed.w_hh = named.result("packed_w_hh");
        packed.bias = named.result("packed_bias");
        return named.run([&] { dlprim::pack_weights(rnn_.shape(), plain, packed); });
    }

    py::dict transpose_weights(const py::dict& arrays) const {
        NamedCall named(forms_, arrays);
        RnnPackedWeights packed;
        packed.w_ih = named.required("packed_w_ih");
        packed.w_hh = named.required("packed_w_hh");
        packed.w_ih_transposed = named.result("transposed_w_ih");
        packed.w_hh_transposed = named.result("transposed_w_hh");
        return named.run([&] { dlprim::transpose_weights(rnn_.shape(), packed); });
    }

    const Forms& forms() const { return forms_; }
    const Rnn& core() const { return rnn_; }
    Rnn& core() { return rnn_; }

private:
    // What both passes read; `called` is what the caller calls src, h_0 and c_0.
    template <class Tensors>
    void take_inputs(NamedCall& named, Tensors& tensors,
                     const std::array<const char*, 3>& called) const {
        tensors.src = named.required("src", called[0]);
        tensors.h_0 = named.optional("h_0", called[1]);
        tensors.c_0 = named.optional("c_0", called[2]);
        tensors.lengths = lengths_in(named, rnn_.shape());
    }

    // What is saved beside the gates.
    float*& beside_gates(RnnSaved& saved) const { return is_lstm() ? saved.cells : saved.hidden_n; }
    const char* beside_gates_name() const { return is_lstm() ? "cells" : "hidden_n"; }
    bool is_lstm() const { return rnn_.shape().cell == RnnCell::lstm; }
    bool has_state() const { return rnn_.shape().has_state(); }

    Rnn rnn_;
    Forms forms_;
    std::shared_ptr<ArrayPool> pool_ = ArrayPool::recurrent();
};

std::unique_ptr<PyRnn> make_rnn(const std::string& cell, const std::array<std::int64_t, 4>& extents,
                                const std::string& dtype, bool reverse, const PyForm& form) {
    return std::make_unique<PyRnn>(RnnShape{.cell = parse_cell(cell),
                                            .T = extents[0],
                                            .N = extents[1],
                                            .C = extents[2],
                                            .K = extents[3],
                                            .dtype = parse_dtype(dtype),
                                            .reverse = reverse,
                                            .form = parse_form(form)});
}

py::dict scratch_bytes(const PyRnn& rnn) {
    const std::int64_t forward = rnn.core().forward_scratch_bytes();
    return py::dict("inference"_a = forward, "forward"_a = forward,
                    "backward"_a = rnn.core().backward_scratch_bytes());
}

// A method of networks that adds a step of a layer, which lives as long as the network.
void register_step(py::module_& module, const char* name,
                   void (*add)(const Rnn&, const Forms&, StepValues&)) {
    network_type(module).def(
        name,
        [name, add](PyNetwork& network, const PyRnn& rnn, const std::string& label,
                    const py::kwargs& values) {
            StepValues step(network, name, label, values);
            add(rnn.core(), rnn.forms(), step);
        },
        py::keep_alive<1, 2>(), py::arg("rnn"), py::arg("label") = "");
}

}  // namespace

void register_rnn(py::module_& module) {
    py::class_<PyRnn> type(module, "Rnn");
    type.def(py::init(&make_rnn))
        .def("forward", &PyRnn::forward)
        .def("backward", &PyRnn::backward)
        .def("pack_weights", &PyRnn::pack_weights)
        .def("transpose_weights", &PyRnn::transpose_weights)
        .def_property_readonly("shapes",
                               [](const PyRnn& rnn) { return rnn.forms().shapes(&Form::shape); })
        .def_property_readonly("flops", [](const PyRnn& rnn) { return rnn.core().shape().flops(); })
        .def_property_readonly("scratch_bytes", scratch_bytes);
    define_schedules(type, kRnnPasses, [](const Rnn& rnn) { return rnn.passes(); });
    register_step(module, "rnn", &add_rnn);
    register_step(module, "rnn_backward", &add_rnn_backward);
    register_step(module, "rnn_pack", &add_rnn_packing);
    register_step(module, "rnn_transpose", &add_rnn_transposing);
}

}  // namespace dlprim::bindings
