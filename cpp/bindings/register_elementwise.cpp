#include <cstdint>
#include <string>
#include <vector>

#include "bindings/conv2d_operand.h"
#include "bindings/register.h"
#include "primitives/layers/dropout.h"
#include "primitives/layers/elementwise.h"
#include "primitives/layers/optimizer.h"

namespace dlprim::bindings {
namespace {

Shape shape_of(py::handle array) {
    if (!py::isinstance<py::array>(array)) return {};
    const auto view = py::reinterpret_borrow<py::array>(array);
    return {view.shape(), view.shape() + view.ndim()};
}

std::int64_t count_of(const Shape& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
}

// A result that may be exactly one of the operands, but overlaps none in part.
char* written(const Operand& result, std::initializer_list<const Maybe*> operands) {
    for (const Maybe* operand : operands) {
        if (*operand && (*operand)->data() != result.data()) result.writeable({operand});
    }
    return result.writeable({});
}

void elementwise(Elementwise operation, const std::string& dtype_name, py::handle src,
                 py::handle other, py::handle out) {
    const DType dtype = parse_dtype(dtype_name);
    const Shape shape = shape_of(src);
    const char* const other_name = operation == Elementwise::relu_backward ? "dst" : "other";
    const char* const name = operation == Elementwise::relu_backward ? "diff_dst" : "src";
    const Maybe first = Operand(name, src, dtype, shape);
    const Maybe second = maybe(other_name, other, dtype, shape);
    char* const to = written(Operand("out", out, dtype, shape), {&first, &second});
    const ElementwiseOperands operands{count_of(shape), first->data(), data_or_null(second), to};
    const py::gil_scoped_release without_gil;
    run_elementwise(operation, dtype, operands);
}

template <Elementwise operation>
void binary(const std::string& dtype, py::object src, py::object other, py::object out) {
    elementwise(operation, dtype, src, other, out);
}

void unary(const std::string& dtype, py::object src, py::object out) {
    elementwise(Elementwise::relu, dtype, src, py::none(), out);
}

void dropout(const std::string& dtype_name, py::object src, py::object out, const Dropout& it) {
    const DType dtype = parse_dtype(dtype_name);
    const Shape shape = shape_of(src);
    const Maybe from = Operand("src", src, dtype, shape);
    char* const to = written(Operand("out", out, dtype, shape), {&from});
    const py::gil_scoped_release without_gil;
    run_dropout(it, dtype, count_of(shape), from->data(), to);
}

// (weights, gradient, first or None, second or None, copy or None), all of one shape, and which
// parameter it is.
Parameter parameter_of(const py::tuple& arrays) {
    const Shape shape = shape_of(arrays[0]);
    const Maybe weights = Operand("a parameter", arrays[0], DType::f32, shape);
    const Maybe gradient = Operand("its gradient", arrays[1], DType::f32, shape);
    const Maybe first = maybe("its first state", arrays[2], DType::f32, shape);
    const Maybe second = maybe("its second state", arrays[3], DType::f32, shape);
    const Maybe copy = maybe("its copy", arrays[4], DType::bf16, shape);
    const auto floats = [](const Maybe& it, std::initializer_list<const Maybe*> others) {
        return it ? reinterpret_cast<float*>(it->writeable(others)) : nullptr;
    };
    return {
        .count = count_of(shape),
        .weights = floats(weights, {&gradient, &first, &second, &copy}),
        .gradient = reinterpret_cast<const float*>(gradient->data()),
        .first = floats(first, {&gradient, &second, &copy}),
        .second = floats(second, {&gradient, &copy}),
        .copy = copy ? reinterpret_cast<std::uint16_t*>(copy->writeable({&gradient})) : nullptr};
}

template <class Step>
void step(const Step& it, const std::vector<py::tuple>& arrays) {
    std::vector<Parameter> parameters;
    for (const py::tuple& each : arrays) {
        const auto where = [&each] {
            return ", of parameters[" + std::string(py::str(each[5])) + "]";
        };
        try {
            parameters.push_back(parameter_of(each));
        } catch (const py::value_error& error) {
            throw py::value_error(error.what() + where());
        } catch (const py::type_error& error) {
            throw py::type_error(error.what() + where());
        }
    }
    const py::gil_scoped_release without_gil;
    run_step(it, parameters);
}

void register_optimizers(py::module_& module) {
    module.def(
        "sgd_step",
        [](const std::vector<py::tuple>& parameters, float learning_rate, float momentum,
           float weight_decay, bool nesterov) {
            step(SgdStep{learning_rate, momentum, weight_decay, nesterov}, parameters);
        },
        py::arg("parameters"), py::arg("learning_rate"), py::arg("momentum"),
        py::arg("weight_decay"), py::arg("nesterov"));
    module.def(
        "adamw_step",
        [](const std::vector<py::tuple>& parameters, double decay, double beta1, double beta2,
           double step_size, double root_scale, double epsilon) {
            const auto f = [](double value) { return static_cast<float>(value); };
            step(AdamwStep{f(decay), f(beta1), f(beta2), f(1 - beta1), f(1 - beta2), f(step_size),
                           f(root_scale), f(epsilon)},
                 parameters);
        },
        py::arg("parameters"), py::arg("decay"), py::arg("beta1"), py::arg("beta2"),
        py::arg("step_size"), py::arg("root_scale"), py::arg("epsilon"));
}

}  // namespace

void register_elementwise(py::module_& module) {
    module.def("relu", unary, py::arg("dtype"), py::arg("src"), py::arg("out"));
    module.def("add", binary<Elementwise::sum>, py::arg("dtype"), py::arg("src"), py::arg("other"),
               py::arg("out"));
    module.def("add_relu", binary<Elementwise::sum_relu>, py::arg("dtype"), py::arg("src"),
               py::arg("other"), py::arg("out"));
    module.def("relu_backward", binary<Elementwise::relu_backward>, py::arg("dtype"),
               py::arg("diff_dst"), py::arg("dst"), py::arg("out"));
    module.def(
        "dropout",
        [](const std::string& dtype, py::object src, py::object out, std::uint64_t seed,
           std::uint64_t offset, std::uint64_t threshold,
           float scale) { dropout(dtype, src, out, Dropout{seed, offset, threshold, scale}); },
        py::arg("dtype"), py::arg("src"), py::arg("out"), py::arg("seed"), py::arg("offset"),
        py::arg("threshold"), py::arg("scale"));
    register_optimizers(module);
}

}  // namespace dlprim::bindings
