#include "primitives/layers/elementwise.h"

#include <cstdint>
#include <string>
#include <vector>

#include "bindings/arrays/call.h"
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

// Results may be exactly one of the operands.
py::object elementwise(Elementwise operation, const std::string& dtype_name, py::handle src,
                       py::handle other, py::handle out) {
    const DType dtype = parse_dtype(dtype_name);
    const Alike alike(src, other);
    const bool is_gradient = operation == Elementwise::relu_backward;
    Call call;
    const char* const first = call.operand(is_gradient ? "diff_dst" : "src", src, alike.of(dtype));
    const char* const second = call.optional(is_gradient ? "dst" : "other", other, alike.of(dtype));
    const Written to = call.result("out", out, alike.of(dtype), src, {first, second});
    call.run([&] { run_elementwise(operation, dtype, {alike.count(), first, second, to.data}); });
    return to.array;
}

py::object dropout(const std::string& dtype_name, py::handle src, py::handle out,
                   const Dropout& it) {
    const DType dtype = parse_dtype(dtype_name);
    const Alike alike(src);
    Call call;
    const char* const from = call.operand("src", src, alike.of(dtype));
    const Written to = call.result("out", out, alike.of(dtype), src, {from});
    call.run([&] { run_dropout(it, dtype, alike.count(), from, to.data); });
    return to.array;
}

// (weights, gradient, first or None, second or None, copy or None), all of one shape, and which
// parameter it is.
Parameter parameter_of(const py::tuple& arrays) {
    const Alike alike(arrays[0]);
    const Expected floats{DType::f32, alike.shape}, halves{DType::bf16, alike.shape};
    Call call;
    const char* const gradient = call.operand("its gradient", arrays[1], floats);
    Parameter it{.count = alike.count(),
                 .weights = call.result("a parameter", arrays[0], floats).floats(),
                 .gradient = reinterpret_cast<const float*>(gradient),
                 .first = call.optional_result("its first state", arrays[2], floats).floats(),
                 .second = call.optional_result("its second state", arrays[3], floats).floats()};
    char* const copy = call.optional_result("its copy", arrays[4], halves).data;
    it.copy = reinterpret_cast<std::uint16_t*>(copy);
    return it;
}

template <class Step>
void step(const Step& it, const py::list& arrays) {
    std::vector<Parameter> parameters;
    for (const py::handle each : arrays) {
        const auto entries = py::reinterpret_borrow<py::tuple>(each);
        const auto where = [&] {
            return ", of parameters[" + std::string(py::str(entries[5])) + "]";
        };
        try {
            parameters.push_back(parameter_of(entries));
        } catch (const py::value_error& error) {
            throw py::value_error(error.what() + where());
        } catch (const py::type_error& error) {
            throw py::type_error(error.what() + where());
        }
    }
    const py::gil_scoped_release without_gil;
    run_step(it, parameters);
}

// As the stub names them.
struct BinaryNames {
    const char* first = "src";
    const char* second = "other";
};

void define_binary(py::module_& module, const char* name, Elementwise operation,
                   const BinaryNames& names = {}) {
    module.def(
        name,
        [operation](const std::string& dtype, py::handle first, py::handle second, py::handle out) {
            return elementwise(operation, dtype, first, second, out);
        },
        py::arg("dtype"), py::arg(names.first), py::arg(names.second), py::arg("out"));
}

}  // namespace

void register_elementwise(py::module_& module) {
    module.def(
        "relu",
        [](const std::string& dtype, py::handle src, py::handle out) {
            return elementwise(Elementwise::relu, dtype, src, py::none(), out);
        },
        py::arg("dtype"), py::arg("src"), py::arg("out"));
    define_binary(module, "add", Elementwise::sum);
    define_binary(module, "add_relu", Elementwise::sum_relu);
    define_binary(module, "relu_backward", Elementwise::relu_backward, {"diff_dst", "dst"});
    module.def(
        "dropout",
        [](const std::string& dtype, py::handle src, py::handle out, std::uint64_t seed,
           std::uint64_t offset, std::uint64_t threshold, float scale) {
            return dropout(dtype, src, out, Dropout{seed, offset, threshold, scale});
        },
        py::arg("dtype"), py::arg("src"), py::arg("out"), py::arg("seed"), py::arg("offset"),
        py::arg("threshold"), py::arg("scale"));
    module.def(
        "sgd_step",
        [](const py::list& parameters, float learning_rate, float momentum, float weight_decay,
           bool nesterov) {
            step(SgdStep{learning_rate, momentum, weight_decay, nesterov}, parameters);
        },
        py::arg("parameters"), py::arg("learning_rate"), py::arg("momentum"),
        py::arg("weight_decay"), py::arg("nesterov"));
    module.def(
        "adamw_step",
        [](const py::list& parameters, double decay, double beta1, double beta2, double step_size,
           double root_scale, double epsilon) {
            const auto f = [](double value) { return static_cast<float>(value); };
            step(AdamwStep{f(decay), f(beta1), f(beta2), f(1 - beta1), f(1 - beta2), f(step_size),
                           f(root_scale), f(epsilon)},
                 parameters);
        },
        py::arg("parameters"), py::arg("decay"), py::arg("beta1"), py::arg("beta2"),
        py::arg("step_size"), py::arg("root_scale"), py::arg("epsilon"));
}

}  // namespace dlprim::bindings
