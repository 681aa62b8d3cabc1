#include "primitives/layers/elementwise.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/arrays/call.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/register.h"
#include "primitives/layers/dropout.h"
#include "primitives/layers/optimizer.h"

namespace dlprim::bindings {
namespace {

// Arrays of one shape, packed or plain; where one says how it is packed, so is the result.
struct Alike {
    Shape shape = {};
    py::object form = {};

    explicit Alike(py::handle first, py::handle second = py::none()) {
        if (!py::isinstance<py::array>(first)) return;
        const auto view = py::reinterpret_borrow<py::array>(first);
        shape.assign(view.shape(), view.shape() + view.ndim());
        form = packed_as(first);
        if (!form) form = packed_as(second);
    }

    Expected of(DType dtype) const { return {dtype, shape, &form}; }
    std::int64_t count() const { return elements_of(shape); }
};

// Of an array that is one of float32 or bfloat16.
DType known_float_type(py::handle array) {
    return py::isinstance<py::array_t<float>>(array) ? DType::f32 : DType::bf16;
}

Elementwise parse_operation(const std::string& name) {
    if (name == "relu") return Elementwise::relu;
    if (name == "add") return Elementwise::sum;
    return name == "add_relu" ? Elementwise::sum_relu : Elementwise::relu_backward;
}

// Results may be exactly one of the operands.
py::object elementwise(const std::string& name, py::handle src, py::handle other, py::handle out) {
    const Elementwise operation = parse_operation(name);
    const DType dtype = known_float_type(src);
    const Alike alike(src, other);
    const bool is_gradient = operation == Elementwise::relu_backward;
    Call call;
    const Memory first = call.operand(is_gradient ? "dy" : "x", src, alike.of(dtype));
    const Memory second = call.optional(is_gradient ? "y" : "other", other, alike.of(dtype));
    const Written to = call.result("out", out, alike.of(dtype), src, {first, second});
    call.run([&] { run_elementwise(operation, dtype, {alike.count(), first, second, to.data}); });
    return to.array;
}

py::object dropout(py::handle src, py::handle out, const Dropout& it) {
    const DType dtype = known_float_type(src);
    const Alike alike(src);
    Call call;
    const Memory from = call.operand("x", src, alike.of(dtype));
    const Written to = call.result("out", out, alike.of(dtype), src, {from});
    call.run([&] { run_dropout(it, dtype, alike.count(), from, to.data); });
    return to.array;
}

// (weights, gradient, first, second, third, copy), all of one shape and the last four perhaps None,
// and which parameter it is.
ParameterState parameter_of(const py::tuple& arrays) {
    const Alike alike(arrays[0]);
    const DType dtype = known_float_type(arrays[0]);
    const Expected floats{dtype, alike.shape}, halves{DType::bf16, alike.shape};
    Call call;
    const Memory gradient = call.operand("its gradient", arrays[1], floats);
    return {.count = alike.count(),
            .dtype = dtype,
            .weights = call.result("a parameter", arrays[0], floats).data,
            .gradient = gradient,
            .first = call.optional_result("its first state", arrays[2], floats).data,
            .second = call.optional_result("its second state", arrays[3], floats).data,
            .third = call.optional_result("its third state", arrays[4], floats).data,
            .copy = call.optional_result("its copy", arrays[5], halves).data};
}

std::vector<ParameterState> parameters_of(const py::list& arrays) {
    std::vector<ParameterState> parameters;
    for (const py::handle each : arrays) {
        const auto entries = py::reinterpret_borrow<py::tuple>(each);
        const auto where = [&] {
            return ", of parameters[" + std::string(py::str(entries[6])) + "]";
        };
        try {
            parameters.push_back(parameter_of(entries));
        } catch (const py::value_error& error) {
            throw py::value_error(error.what() + where());
        } catch (const py::type_error& error) {
            throw py::type_error(error.what() + where());
        }
    }
    return parameters;
}

// Settings as the rule takes them, and of each parameter how often it was updated, this time
// included, where the rule asks for it; all gradients are scaled.
void update(const std::string& name, const py::list& arrays, const std::vector<double>& settings,
            const std::vector<std::int64_t>& steps, float scale) {
    const UpdateRule rule = update_rule(name);
    if (settings.size() != rule.settings()) throw std::logic_error("settings are missing");
    std::vector<ParameterState> parameters = parameters_of(arrays);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].scale = scale;
        if (rule.counts_steps()) parameters[i].steps = steps.at(i);
    }
    const WithoutGil without_gil;
    Update(rule, parameters).run(settings.data(), parameters);
}

}  // namespace

void register_elementwise(py::module_& module) {
    module.def("elementwise", elementwise, py::arg("operation"), py::arg("src"), py::arg("other"),
               py::arg("out"));
    module.def(
        "dropout",
        [](py::handle src, py::handle out, std::uint64_t seed, std::uint64_t offset,
           std::uint64_t threshold,
           float scale) { return dropout(src, out, Dropout{seed, offset, threshold, scale}); },
        py::arg("src"), py::arg("out"), py::arg("seed"), py::arg("offset"), py::arg("threshold"),
        py::arg("scale"));
    module.def("update", &update, py::arg("rule"), py::arg("parameters"), py::arg("settings"),
               py::arg("steps"), py::arg("scale") = 1.0F);
}

}  // namespace dlprim::bindings
