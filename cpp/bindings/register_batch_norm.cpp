#include <cstdint>

#include "bindings/activations.h"
#include "bindings/register.h"
#include "primitives/layers/batch_norm.h"

namespace dlprim::bindings {
namespace {

// Operands of one call by name, None where absent.
class Named {
public:
    Named(const PyActivations& activations, const py::dict& arrays)
        : activations_(activations), arrays_(arrays) {}

    Maybe packed(const char* name) const { return activations_.packed(name, arrays_[name]); }
    Maybe mask(const char* name) const { return activations_.mask(name, arrays_[name]); }
    Maybe by_channel(const char* name) const {
        return activations_.by_channel(name, arrays_[name]);
    }

private:
    const PyActivations& activations_;
    const py::dict& arrays_;
};

// `result` apart from `operands`, except that it may be exactly one of `replaced`.
char* written(const Maybe& result, std::initializer_list<const Maybe*> operands,
              std::initializer_list<const Maybe*> replaced) {
    if (!result) return nullptr;
    for (const Maybe* operand : replaced) {
        if (*operand && (*operand)->data() == result->data()) continue;
        result->writeable({operand});
    }
    return result->writeable(operands);
}

float* floats(char* data) { return reinterpret_cast<float*>(data); }

void require_both(const char* names, const Maybe& first, const Maybe& second) {
    if (first.has_value() != second.has_value()) {
        throw py::value_error(std::string("one of ") + names + " is missing, expected both");
    }
}

class PyBatchNorm {
public:
    PyBatchNorm(const PyActivations& activations, bool relu, float epsilon)
        : activations_(activations),
          norm_{activations.tensor(), activations.layout(), relu, epsilon} {}

    void forward(const py::dict& arrays) const {
        const Named named(activations_, arrays);
        const Maybe src = named.packed("src"), residual = named.packed("residual");
        const Maybe weight = named.by_channel("weight"), bias = named.by_channel("bias");
        const Maybe given_mean = named.by_channel("running_mean");
        const Maybe given_variance = named.by_channel("running_var");
        const Maybe dst = named.packed("out"), mask = named.mask("relu_mask");
        const Maybe mean = named.by_channel("mean"), inverse = named.by_channel("inverse_std");
        const Maybe variance = named.by_channel("variance");
        require_both("running_mean and running_var", given_mean, given_variance);
        BatchNormForward tensors{.src = src.value().data(),
                                 .weight = floats_or_null(weight),
                                 .bias = floats_or_null(bias),
                                 .residual = data_or_null(residual),
                                 .given_mean = floats_or_null(given_mean),
                                 .given_variance = floats_or_null(given_variance)};
        tensors.dst = written(dst, {&weight, &bias, &given_mean, &given_variance, &mean, &inverse},
                              {&src, &residual});
        tensors.relu_mask = reinterpret_cast<std::uint8_t*>(
            written(mask, {&src, &residual, &weight, &bias, &dst, &mean, &inverse}, {}));
        tensors.mean = floats(written(mean, {&src, &residual, &weight, &bias, &given_mean}, {}));
        tensors.inverse_std =
            floats(written(inverse, {&src, &residual, &weight, &bias, &given_variance, &mean}, {}));
        tensors.variance = floats(written(variance, {&mean, &inverse}, {}));
        const py::gil_scoped_release without_gil;
        batch_norm_forward(norm_, tensors);
    }

    void backward(const py::dict& arrays, bool is_given, double given_pixels) const {
        const Named named(activations_, arrays);
        const Maybe diff_dst = named.packed("diff_dst"), src = named.packed("src");
        const Maybe addend = named.packed("diff_addend");
        const Maybe dst = named.packed("dst"), mask = named.mask("relu_mask");
        const Maybe mean = named.by_channel("mean"), inverse = named.by_channel("inverse_std");
        const Maybe weight = named.by_channel("weight"), bias = named.by_channel("bias");
        const Maybe given_weight = named.by_channel("given_diff_weight");
        const Maybe given_bias = named.by_channel("given_diff_bias");
        const Maybe diff_src = named.packed("out");
        const Maybe diff_residual = named.packed("diff_residual");
        const Maybe diff_weight = named.by_channel("diff_weight");
        const Maybe diff_bias = named.by_channel("diff_bias");
        BatchNormBackward tensors{.diff_dst = diff_dst.value().data(),
                                  .diff_addend = data_or_null(addend),
                                  .src = src.value().data(),
                                  .mean = floats_or_null(mean),
                                  .inverse_std = floats_or_null(inverse),
                                  .weight = floats_or_null(weight),
                                  .dst = data_or_null(dst),
                                  .relu_mask = bits_or_null(mask),
                                  .bias = floats_or_null(bias),
                                  .is_given = is_given,
                                  .given_diff_weight = floats_or_null(given_weight),
                                  .given_diff_bias = floats_or_null(given_bias),
                                  .given_pixels = given_pixels};
        require_both("given_diff_weight and given_diff_bias", given_weight, given_bias);
        const auto others = {&addend, &dst,  &mask,         &mean,      &inverse,
                             &weight, &bias, &given_weight, &given_bias};
        tensors.diff_src = written(diff_src, others, {&src, &diff_dst});
        written(diff_residual, {&src, &diff_src}, {});
        tensors.diff_residual = written(diff_residual, others, {&diff_dst});
        written(diff_weight, {&src, &diff_dst, &diff_src, &diff_residual}, {});
        written(diff_bias, {&src, &diff_dst, &diff_src, &diff_residual, &diff_weight}, {});
        tensors.diff_weight = floats(written(diff_weight, others, {}));
        tensors.diff_bias = floats(written(diff_bias, others, {}));
        const py::gil_scoped_release without_gil;
        batch_norm_backward(norm_, tensors);
    }

private:
    PyActivations activations_;
    BatchNorm norm_;
};

}  // namespace

void register_batch_norm(py::module_& module) {
    py::class_<PyActivations>(module, "Activations")
        .def(py::init<const Shape&, std::int64_t, const std::string&, const std::string&>(),
             py::arg("shape"), py::arg("groups"), py::arg("dtype"), py::arg("layout"))
        .def("pack", &PyActivations::pack, py::arg("x"), py::arg("out"))
        .def("unpack", &PyActivations::unpack, py::arg("packed"), py::arg("out"))
        .def_property_readonly("packed_shape",
                               [](const PyActivations& it) { return tuple_of(it.packed_shape()); })
        .def_property_readonly("relu_mask_shape",
                               [](const PyActivations& it) { return tuple_of(it.mask_shape()); });
    py::class_<PyBatchNorm>(module, "BatchNorm")
        .def(py::init<const PyActivations&, bool, float>(), py::arg("activations"), py::arg("relu"),
             py::arg("epsilon"))
        .def("forward", &PyBatchNorm::forward, py::arg("arrays"))
        .def("backward", &PyBatchNorm::backward, py::arg("arrays"), py::arg("is_given"),
             py::arg("given_pixels"));
}

}  // namespace dlprim::bindings
