// What the bindings of all primitives have in common: a core, the table of its forms, and what
// Python may see and change of both, which is loop nests, shapes, and arrays plain to packed and
// back.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/arrays/call.h"
#include "bindings/graph/network.h"
#include "primitives/layers/activation_backward.h"
#include "primitives/nest/loop_nest.h"
#include "primitives/tensor/quantization.h"

namespace dlprim::bindings {

// A primitive with src, dst, weights, a bias and an activation, whose gradient `kThroughActivation`
// computes. Passes write to `out`, or to a new array where it is None, and return it.
template <class Core, void (Core::*kThroughActivation)(ActivationBackward) const>
class Primitive {
public:
    const Core& core() const { return core_; }
    Core& core() { return core_; }
    const Forms& forms() const { return forms_; }

    // A new result is of float32 unless it is to be `narrow`.
    py::object backward_weights(py::handle src, py::handle diff_dst, py::handle out,
                                bool narrow) const {
        require_backward();
        Call call;
        const Memory source = call.operand("src", src, src_);
        const Memory gradient = call.operand("diff_dst", diff_dst, dst_);
        const Form& form = narrow && out.is_none() ? forms_["narrow_diff_weights"]
                                                   : forms_.matching("diff_weights", out);
        const Written result = call.result("out", out, form, src);
        call.run([&] { core_.backward_weights(source, gradient, form.dtype(), result.data); },
                 flops_);
        return result.array;
    }

    // The gradient in front of the activation, and the bias's where that is given. What the
    // activation's slope follows from is `saved` or, of relu, `relu_mask`; with neither, and no
    // `out`, diff_dst itself is returned.
    py::object backward_activation(py::handle diff_dst, py::handle saved, py::handle relu_mask,
                                   py::handle out, py::handle diff_bias) const {
        require_backward();
        Call call;
        ActivationBackward problem{.diff_dst = call.operand("diff_dst", diff_dst, dst_),
                                   .saved = call.optional(saved_name_, saved, dst_)};
        if (!relu_mask.is_none()) {
            problem.relu_mask = call.operand("relu_mask", relu_mask, forms_["relu_mask"]);
        }
        Written passed{py::reinterpret_borrow<py::object>(diff_dst)};
        if (problem.saved != nullptr || problem.relu_mask != nullptr || !out.is_none()) {
            passed = call.result("out", out, dst_, diff_dst, {problem.diff_dst});
        }
        problem.out = passed.data;
        problem.diff_bias = call.optional_result("diff_bias", diff_bias, bias_).data;
        call.run([&] { (core_.*kThroughActivation)(problem); });
        return passed.array;
    }

protected:
    // The core comes first, for it refuses what has no forms.
    template <class Spec>
    Primitive(const Spec& spec, std::vector<TensorForm> (*table)(const Spec&), const char* kind,
              const char* saved_name)
        : core_(spec), forms_(table(spec)), kind_(kind), saved_name_(saved_name) {
        if (is_int8(core_.spec().dtype)) {
            zeros_.resize(static_cast<std::size_t>(core_.spec().shape.K));
        }
    }

    Memory bias_in(Call& call, py::handle bias) const {
        require_bias(!bias.is_none());
        return call.optional("bias", bias, bias_);
    }
    int bias_in(StepValues& step) const {
        require_bias(step.number("bias") >= 0);
        return step.optional("bias", bias_);
    }

    void require_bias(bool is_given) const {
        if (core_.spec().bias == is_given) return;
        const std::string it = kind_;
        throw py::value_error(is_given
                                  ? "bias was given, but the " + it + " was made without bias=True"
                                  : "bias is missing: the " + it + " was made with bias=True");
    }

    // Of an 8-bit primitive: its int_bias, or None for zeros, scale, zero points of src and dst,
    // and scale of a residual. None for any other.
    Quantization quantization_in(Call& call, py::handle given) const {
        if (given.is_none()) return {};
        const auto [int_bias, scale, src_zero, dst_zero, residual_scale] =
            given.cast<std::tuple<py::object, py::object, std::int32_t, std::int32_t, float>>();
        if (scale.is_none() != (dst_.dtype() == DType::s32)) {
            throw py::value_error(scale.is_none()
                                      ? "scale is missing: 8-bit products are multiplied by it"
                                      : "scale was given, but dst is of int32, the exact sums");
        }
        Quantization made{.int_bias = call.optional("int_bias", int_bias, forms_["int_bias"]),
                          .scale = call.optional("scale", scale, forms_["scale"]),
                          .src_zero_point = src_zero,
                          .residual_scale = residual_scale,
                          .range = {.zero_point = dst_zero}};
        if (made.int_bias == nullptr) made.int_bias = zeros_.data();
        return made;
    }

    // The same of a step: values for int_bias, or none, and scale; numbers are the zero point of
    // src, the scale of a residual, the bounds and the zero point of dst, and, or None, those of an
    // InnerRounding.
    auto quantization_in(StepValues& step, py::handle numbers) const {
        Quantization made;
        int int_bias = -1, scale = -1;
        if (is_int8(core_.spec().dtype) == numbers.is_none()) {
            step.refuse("quantized is for primitives of 8 bits, and these need it");
        }
        if (!numbers.is_none()) {
            using Inner = std::optional<std::array<float, 4>>;
            using Numbers = std::tuple<std::int32_t, float, float, float, std::int32_t, Inner>;
            const auto [src_zero, residual_scale, lowest, highest, dst_zero, inner] =
                numbers.cast<Numbers>();
            made = {.src_zero_point = src_zero,
                    .residual_scale = residual_scale,
                    .range = {lowest, highest, dst_zero}};
            if (inner) made.inner = {(*inner)[0], (*inner)[1], (*inner)[2], (*inner)[3]};
            int_bias = step.optional("int_bias", forms_["int_bias"]);
            if (dst_.dtype() != DType::s32) scale = step.operand("scale", forms_["scale"]);
        }
        return [=, zeros = zeros_.data()](const Addresses& at) {
            Quantization of_run = made;
            of_run.int_bias = int_bias < 0 ? zeros : static_cast<const std::int32_t*>(at[int_bias]);
            of_run.scale = at[scale];
            return of_run;
        };
    }

    // 8-bit primitives, and those whose result is of another type, have the forward pass alone.
    void require_backward() const {
        const DType dtype = core_.spec().dtype, result = core_.spec().dst_dtype;
        if (!is_int8(dtype) && result == dtype) return;
        const std::string of_result =
            is_int8(dtype) ? "" : " and its result of " + std::string(name_of(result));
        throw py::type_error("the " + std::string(kind_) + " is of dtype " +
                             std::string(name_of(dtype)) + of_result +
                             ", which has the forward pass alone");
    }

    Core core_;
    Forms forms_;
    const char* kind_;                           // what sentences call it,
    const char* saved_name_;                     // and what its activation's slope follows from
    double flops_ = core_.spec().shape.flops();  // of a pass
    // Looked up once.
    const Form& src_ = forms_["src"];
    const Form& dst_ = forms_["dst"];
    const Form& weights_ = forms_["weights"];
    const Form& bias_ = forms_["bias"];
    std::vector<std::int32_t> zeros_ = {};  // K of an 8-bit primitive
};

// What `value` gives for every pass, by the name of the pass.
template <class Passes, class Value>
py::dict by_pass(const Passes& passes, const Value& value) {
    py::dict made;
    for (const auto pass : passes) made[py::str(name_of(pass))] = value(pass);
    return made;
}

template <class Bound, class Passes>
py::dict scratch_by_pass(const Bound& it, const Passes& passes) {
    return by_pass(passes, [&](auto pass) { return it.core().scratch_bytes(pass); });
}

// The pass of that name, of `all`.
template <class Passes>
auto parse_pass(const Passes& all, const std::string& name) {
    std::string names;
    for (const auto pass : all) {
        if (name == name_of(pass)) return pass;
        names += (names.empty() ? "" : ", ") + std::string(name_of(pass));
    }
    throw py::value_error("pass is '" + name + "', expected one of " + names);
}

// `all` are the passes there can be, `scheduled` gives those of a primitive that have a schedule.
template <class Bound, class Passes, class Scheduled>
void define_schedules(py::class_<Bound>& type, const Passes& all, Scheduled scheduled) {
    type.def("set_schedule",
             [all](Bound& it, const std::string& which, const std::string& text) {
                 it.core().set_schedule(parse_pass(all, which), parse_schedule(text));
             })
        .def("candidates",
             [all](const Bound& it, const std::string& which, int count) {
                 py::list texts;
                 for (const Schedule& each : it.core().candidates(parse_pass(all, which), count)) {
                     texts.append(to_string(each));
                 }
                 return texts;
             })
        .def("loops",
             [all](const Bound& it, const std::string& which) {
                 py::dict extents;
                 for (const Loop& loop : it.core().loops(parse_pass(all, which))) {
                     extents[py::str(std::string(1, loop.letter))] = loop.extent;
                 }
                 return extents;
             })
        .def("describe", [](const Bound& it) { return it.core().describe(); })
        .def_property_readonly("schedules", [scheduled](const Bound& it) {
            const auto text = [&](auto pass) { return to_string(it.core().schedule(pass)); };
            return by_pass(scheduled(it.core()), text);
        });
}

// Steps between a plain value and one in a form of a primitive; float32 is rounded to bfloat16 as
// it is packed.
template <class Bound>
void add_pack(PyNetwork& network, const Bound& of, const std::string& form, int src, int dst,
              const std::string& label) {
    StepValues step(network, "pack", label, py::dict(py::arg("src") = src, py::arg("dst") = dst));
    const Form& to = of.forms()[form];
    const bool rounds = to.dtype() == DType::bf16 && step.tensor("src").dtype == "float32";
    const DType from = rounds ? DType::f32 : to.dtype();
    step.operand("src", {from, to.plain_shape()});
    step.result("dst", to.written_whole());
    step.add([src, dst, &packing = to.packing(from)](const Addresses& at) {
        packing.run(at[src], at[dst]);
    });
}
template <class Bound>
void add_unpack(PyNetwork& network, const Bound& of, const std::string& form, int src, int dst,
                const std::string& label) {
    StepValues step(network, "unpack", label, py::dict(py::arg("src") = src, py::arg("dst") = dst));
    const Form& from = of.forms()[form];
    step.operand("src", from);
    step.result("dst", from.plain());
    step.add([src, dst, &unpacking = from.unpacking()](const Addresses& at) {
        unpacking.run(at[src], at[dst]);
    });
}

// `shapes` and `plain_shapes` by the names of operands; between them `pack` and `unpack`, of arrays
// and as steps, and new packed arrays.
template <class Bound>
void define_forms(const py::module_& module, py::class_<Bound>& type) {
    type.def_property_readonly("shapes",
                               [](const Bound& it) { return it.forms().shapes(&Form::shape); })
        .def_property_readonly(
            "plain_shapes", [](const Bound& it) { return it.forms().shapes(&Form::plain_shape); })
        .def("pack",
             [](const Bound& it, const std::string& form, const std::string& name, py::handle plain,
                py::handle out) { return pack(it.forms()[form], name.c_str(), plain, out); })
        .def("unpack",
             [](const Bound& it, const std::string& form, py::handle packed, py::handle out) {
                 return unpack(it.forms().matching(form, packed), form.c_str(), packed, out);
             })
        .def("new", [](const Bound& it, const std::string& form, py::handle like) {
            const Form& of = it.forms()[form];
            return new_array(of, dtype_for(of.dtype(), like));
        });
    network_type(module)
        .def("pack", &add_pack<Bound>, py::keep_alive<1, 2>(), py::arg("of"), py::arg("form"),
             py::arg("src"), py::arg("dst"), py::arg("label") = "")
        .def("unpack", &add_unpack<Bound>, py::keep_alive<1, 2>(), py::arg("of"), py::arg("form"),
             py::arg("src"), py::arg("dst"), py::arg("label") = "");
}

}  // namespace dlprim::bindings
