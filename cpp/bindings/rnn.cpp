#include "bindings/rnn.h"

#include <deque>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bindings/conv2d_operand.h"

namespace dlprim::bindings {
namespace {

RnnCell parse_cell(const std::string& name) {
    if (name == name_of(RnnCell::lstm)) return RnnCell::lstm;
    if (name == name_of(RnnCell::gru)) return RnnCell::gru;
    throw py::value_error("cell is '" + name + "', expected 'lstm' or 'gru'");
}

RnnShape rnn_shape(const std::string& cell, const std::vector<std::int64_t>& extents,
                  const std::string& dtype, bool reverse) {
    if (extents.size() != 4) {
        throw py::value_error("extents has " + std::to_string(extents.size()) +
                              " values, expected T, N, C and K");
    }
    return {.cell = parse_cell(cell),
            .T = extents[0],
            .N = extents[1],
            .C = extents[2],
            .K = extents[3],
            .dtype = parse_dtype(dtype),
            .reverse = reverse};
}

}  // namespace

// The arrays of a call by name. Operands are asked for before results, so that every result can be
// held against all operands and earlier results.
class PyRnn::Operands {
public:
    Operands(const PyRnn& rnn, const py::dict& arrays) : rnn_(rnn), arrays_(arrays) {}

    // Null where the array is None or absent.
    const char* optional(const char* name) {
        const py::object array = arrays_.attr("get")(name);
        if (array.is_none()) return nullptr;
        const Form form = rnn_.form(name);
        return taken_.emplace_back(Operand(name, array, form.dtype, form.shape))->data();
    }
    const char* required(const char* name) {
        const char* const data = optional(name);
        if (data == nullptr) throw py::value_error(std::string(name) + " is missing");
        return data;
    }
    char* result(const char* name) {
        required(name);
        const Maybe made = std::move(taken_.back());
        taken_.pop_back();
        char* const data = made->writeable({});
        for (const Maybe& other : taken_) made->writeable({&other});
        taken_.push_back(made);
        return data;
    }

    const float* optional_floats(const char* name) {
        return reinterpret_cast<const float*>(optional(name));
    }
    float* result_floats(const char* name) { return reinterpret_cast<float*>(result(name)); }
    const float* required_floats(const char* name) {
        return reinterpret_cast<const float*>(required(name));
    }
    float* stored_floats(const char* name) { return const_cast<float*>(required_floats(name)); }

    // A copy: what was checked here must not change while others have the GIL.
    const std::int64_t* lengths() {
        const py::object array = arrays_.attr("get")("lengths");
        if (array.is_none()) return nullptr;
        using Integers = py::array_t<std::int64_t, py::array::c_style>;
        if (!py::isinstance<Integers>(array)) {
            throw py::type_error("lengths has another type, expected a C-contiguous int64 array");
        }
        const auto given = py::reinterpret_borrow<Integers>(array);
        const RnnShape& shape = rnn_.rnn_.shape();
        if (given.ndim() != 1 || given.shape(0) != shape.N) {
            throw py::value_error("lengths has shape " + std::string(py::str(given.attr("shape"))) +
                                  ", expected (" + std::to_string(shape.N) + ",)");
        }
        lengths_.assign(given.data(), given.data() + shape.N);
        for (std::int64_t n = 0; n < shape.N; ++n) {
            const std::int64_t length = lengths_[static_cast<std::size_t>(n)];
            if (length >= 0 && length <= shape.T) continue;
            throw py::value_error("lengths[" + std::to_string(n) + "] is " +
                                  std::to_string(length) +
                                  ", expected an integer from 0 to T = " + std::to_string(shape.T));
        }
        return lengths_.data();
    }

private:
    const PyRnn& rnn_;
    const py::dict& arrays_;
    std::deque<Maybe> taken_;
    std::vector<std::int64_t> lengths_;
};

PyRnn::PyRnn(const std::string& cell, const std::vector<std::int64_t>& extents,
             const std::string& dtype, bool reverse)
    : rnn_(rnn_shape(cell, extents, dtype, reverse)) {}

PyRnn::Shape PyRnn::packed_shape(const std::string& name) const {
    const RnnShape& it = rnn_.shape();
    const bool from_src = name.starts_with("packed_w_ih") || name.starts_with("transposed_w_ih");
    const bool transposed = name.starts_with("transposed");
    const Panels input = from_src ? it.src() : it.state();
    const Panels rows = transposed ? it.state() : input;
    const Panels columns = transposed ? input : it.state();
    const std::int64_t group = elements_per_word(it.dtype);
    Shape shape{columns.count(), it.gates(), rows.count(), rows.width / group, columns.width};
    if (group > 1) shape.push_back(group);
    return shape;
}

PyRnn::Form PyRnn::form(const std::string& name) const {
    const RnnShape& it = rnn_.shape();
    const Shape states{it.N, it.K};
    const Shape steps{it.T, it.N, it.K};
    if (name == "src" || name == "diff_src") return {it.dtype, {it.T, it.N, it.C}};
    if (name == "dst" || name == "diff_dst") return {it.dtype, steps};
    if (name == "gates") return {DType::f32, {it.T, it.N, it.gates() * it.K}};
    if (name == "cells" || name == "hidden_n") return {DType::f32, steps};
    if (name.find("h_") != std::string::npos && name.find("w_") == std::string::npos &&
        name.find("b_") == std::string::npos) {
        return {it.dtype, states};
    }
    if (name == "c_0" || name == "c_n" || name == "diff_c_0" || name == "diff_c_n") {
        return {DType::f32, states};
    }
    if (name == "w_ih") return {it.dtype, {it.gates() * it.K, it.C}};
    if (name == "w_hh") return {it.dtype, {it.gates() * it.K, it.K}};
    if (name == "diff_w_ih") return {DType::f32, {it.gates() * it.K, it.C}};
    if (name == "diff_w_hh") return {DType::f32, {it.gates() * it.K, it.K}};
    if (name == "packed_bias") return {DType::f32, {4, it.K}};
    if (name.ends_with("b_ih") || name.ends_with("b_hh")) {
        return {DType::f32, {it.gates() * it.K}};
    }
    return {it.dtype, packed_shape(name)};
}

void PyRnn::forward(const py::dict& arrays) const {
    Operands operands(*this, arrays);
    const bool is_lstm = rnn_.shape().cell == RnnCell::lstm;
    RnnForward tensors{.src = operands.required("src")};
    tensors.weights.w_ih = const_cast<char*>(operands.required("packed_w_ih"));
    tensors.weights.w_hh = const_cast<char*>(operands.required("packed_w_hh"));
    tensors.weights.bias = operands.stored_floats("packed_bias");
    tensors.h_0 = operands.optional("h_0");
    if (is_lstm) tensors.c_0 = operands.optional_floats("c_0");
    tensors.lengths = operands.lengths();
    tensors.dst = operands.result("dst");
    tensors.h_n = operands.result("h_n");
    if (is_lstm) tensors.c_n = operands.result_floats("c_n");
    if (arrays.contains("gates")) {
        tensors.saved.gates = operands.result_floats("gates");
        (is_lstm ? tensors.saved.cells : tensors.saved.hidden_n) =
            operands.result_floats(is_lstm ? "cells" : "hidden_n");
    }
    const py::gil_scoped_release without_gil;
    rnn_.forward(tensors);
}

void PyRnn::backward(const py::dict& arrays) const {
    Operands operands(*this, arrays);
    const bool is_lstm = rnn_.shape().cell == RnnCell::lstm;
    RnnBackward tensors{.diff_dst = operands.required("diff_dst"),
                        .diff_h_n = operands.optional("diff_h_n")};
    if (is_lstm) tensors.diff_c_n = operands.optional_floats("diff_c_n");
    tensors.weights.w_ih_transposed = const_cast<char*>(operands.required("transposed_w_ih"));
    tensors.weights.w_hh_transposed = const_cast<char*>(operands.required("transposed_w_hh"));
    tensors.src = operands.required("src");
    tensors.h_0 = operands.optional("h_0");
    if (is_lstm) tensors.c_0 = operands.optional_floats("c_0");
    tensors.lengths = operands.lengths();
    tensors.dst = operands.required("dst");
    tensors.saved.gates = operands.stored_floats("gates");
    (is_lstm ? tensors.saved.cells : tensors.saved.hidden_n) =
        operands.stored_floats(is_lstm ? "cells" : "hidden_n");
    tensors.diff_src = operands.result("diff_src");
    tensors.diff_h_0 = operands.result("diff_h_0");
    if (is_lstm) tensors.diff_c_0 = operands.result_floats("diff_c_0");
    tensors.diff_w_ih = operands.result_floats("diff_w_ih");
    tensors.diff_w_hh = operands.result_floats("diff_w_hh");
    tensors.diff_b_ih = operands.result_floats("diff_b_ih");
    tensors.diff_b_hh = operands.result_floats("diff_b_hh");
    const py::gil_scoped_release without_gil;
    rnn_.backward(tensors);
}

void PyRnn::pack_weights(const py::dict& arrays) const {
    Operands operands(*this, arrays);
    const RnnWeights plain{.w_ih = operands.required("w_ih"),
                           .w_hh = operands.required("w_hh"),
                           .b_ih = operands.optional_floats("b_ih"),
                           .b_hh = operands.optional_floats("b_hh")};
    RnnPackedWeights packed;
    packed.w_ih = operands.result("packed_w_ih");
    packed.w_hh = operands.result("packed_w_hh");
    packed.bias = operands.result_floats("packed_bias");
    const py::gil_scoped_release without_gil;
    dlprim::pack_weights(rnn_.shape(), plain, packed);
}

void PyRnn::transpose_weights(const py::dict& arrays) const {
    Operands operands(*this, arrays);
    RnnPackedWeights packed;
    packed.w_ih = const_cast<char*>(operands.required("packed_w_ih"));
    packed.w_hh = const_cast<char*>(operands.required("packed_w_hh"));
    packed.w_ih_transposed = operands.result("transposed_w_ih");
    packed.w_hh_transposed = operands.result("transposed_w_hh");
    const py::gil_scoped_release without_gil;
    dlprim::transpose_weights(rnn_.shape(), packed);
}

py::dict PyRnn::packed_shapes() const {
    py::dict shapes;
    for (const char* const name :
         {"packed_w_ih", "packed_w_hh", "transposed_w_ih", "transposed_w_hh"}) {
        shapes[name] = tuple_of(packed_shape(name));
    }
    return shapes;
}

}  // namespace dlprim::bindings
