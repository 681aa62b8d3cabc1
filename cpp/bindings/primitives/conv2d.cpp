#include "primitives/conv/conv2d.h"

#include <array>
#include <memory>
#include <optional>
#include <string>

#include <pybind11/stl.h>

#include "bindings/primitives/primitive.h"
#include "bindings/register.h"
#include "primitives/tensor/partition.h"

namespace dlprim::bindings {
namespace {

// The fields of ConvShape in their order.
ConvShape conv_shape(const std::array<std::int64_t, 16>& it) {
    return {it[0], it[1], it[2],  it[3],  it[4],  it[5],  it[6],  it[7],
            it[8], it[9], it[10], it[11], it[12], it[13], it[14], it[15]};
}

ConvAlgorithm parse_algorithm(const std::string& name) {
    if (name == "winograd") return ConvAlgorithm::winograd;
    return name == "auto" ? ConvAlgorithm::automatic : ConvAlgorithm::direct;
}

std::vector<TensorForm> forms_of(const ConvSpec& spec) {
    return conv_forms(spec.shape, spec.dtype, spec.layout);
}

class PyConv2d : public Primitive<Conv2d, &Conv2d::backward_relu> {
public:
    explicit PyConv2d(const ConvSpec& spec) : Primitive(spec, &forms_of, "convolution", "dst") {
        add_transformed(forward_weights_, {PassKind::forward});
        add_transformed(all_weights_, {PassKind::forward, PassKind::backward_data});
    }

    py::object forward(py::handle src, py::handle weights, py::handle bias, py::handle residual,
                       py::handle relu_mask, py::handle out) const {
        Call call;
        const Weights filter = weights_in(call, weights);
        ConvForward tensors{.src = call.operand("src", src, src_),
                            .weights = filter.direct,
                            .bias = bias_in(call, bias),
                            .residual = call.optional("residual", residual, dst_),
                            .transformed = filter.forward};
        if (!relu_mask.is_none() && core_.spec().activation != Activation::relu) {
            throw py::value_error(
                "relu_mask was given, but the activation of the convolution is '" +
                std::string(name_of(core_.spec().activation)) + "', expected 'relu'");
        }
        const Written dst = call.result("out", out, dst_, src, {tensors.residual});
        tensors.dst = dst.data;
        tensors.relu_mask = call.optional_result("relu_mask", relu_mask, relu_mask_).data;
        call.run([&] { core_.forward(tensors); });
        return dst.array;
    }

    py::object backward_data(py::handle diff_dst, py::handle weights, py::handle out) const {
        Call call;
        const Memory gradient = call.operand("diff_dst", diff_dst, dst_);
        const Weights filter = weights_in(call, weights);
        const Written diff_src = call.result("out", out, src_, diff_dst);
        call.run(
            [&] { core_.backward_data(gradient, filter.direct, diff_src.data, filter.backward); });
        return diff_src.array;
    }

    // `form`: "direct", "forward" or "all"; where there is an `out`, its shape says it. An array
    // that cannot say how its weights are transformed is returned as one that can, on the same
    // memory.
    py::object pack_weights(py::handle w, py::handle out, const std::string& form) const {
        const Form& to = out.is_none() ? weights_form(form) : weights_form_of(out);
        if (&to == &weights_) return pack(weights_, "w", w, out);
        Call call;
        const DType from = plain_type_of(weights_, w);
        const Memory source = call.operand("w", w, {from, weights_.plain_shape()});
        const Written packed = call.result("out", out, to.written_whole(), w);
        const Weights parts = parts_of(packed.data.data, to);
        const Reorder& packing = weights_.packing(from);
        call.run([&] {
            packing.run(source, packed.data);
            transform(PassKind::forward, parts, parts.forward);
            transform(PassKind::backward_data, parts, parts.backward);
        });
        return packed_view(packed.array, to.packed_as());
    }

    // Of packed weights by their form.
    py::dict weights_shapes() const {
        py::dict shapes;
        for (const char* const form : {"all", "forward", "direct"}) {
            shapes[form] = tuple_of(weights_form(form).shape());
        }
        return shapes;
    }

private:
    // Packed weights in one array: as the direct algorithm takes them, and behind them, from a
    // cache line on, the transformed ones of Winograd's passes, float32 in any dtype. Null where
    // they are not in it.
    struct Weights {
        const char* direct = nullptr;
        const float* forward = nullptr;
        const float* backward = nullptr;
    };

    bool runs(PassKind pass) const { return core_.transformed_floats(pass) > 0; }

    std::int64_t direct_bytes() const { return dlprim::aligned(weights_.layout().bytes()); }

    // A form with the weights of these passes that are Winograd's, if any of them is. Its name
    // says the tiles, so that those of another choice are refused.
    void add_transformed(std::optional<Form>& form, std::initializer_list<PassKind> passes) {
        std::int64_t bytes = direct_bytes();
        std::string name = std::string(py::str(weights_.packed_as())) + ", transformed for ";
        std::string separator;
        for (const PassKind pass : passes) {
            if (!runs(pass)) continue;
            bytes += core_.transformed_floats(pass) * size_of(DType::f32);
            name += separator + std::string(name_of(pass)) + " in " + core_.algorithm(pass);
            separator = " and ";
        }
        if (!separator.empty()) form.emplace(weights_, bytes / size_of(weights_.dtype()), name);
    }

    const Form& weights_form(const std::string& form) const {
        const std::optional<Form>& flat = form == "all" ? all_weights_ : forward_weights_;
        return form == "direct" || !flat ? weights_ : *flat;
    }

    // By the array's shape; which tiles a flat one is for, it must say itself.
    const Form& weights_form_of(py::handle array) const {
        if (!all_weights_ || has_shape(array, weights_.shape())) return weights_;
        const bool is_short = forward_weights_ && has_shape(array, forward_weights_->shape());
        return is_short ? *forward_weights_ : *all_weights_;
    }

    Weights parts_of(const char* data, const Form& form) const {
        Weights parts{.direct = data};
        const auto* next = reinterpret_cast<const float*>(data + direct_bytes());
        if (runs(PassKind::forward)) {
            parts.forward = next;
            next += core_.transformed_floats(PassKind::forward);
        }
        if (runs(PassKind::backward_data) && &form == &*all_weights_) parts.backward = next;
        return parts;
    }

    Weights weights_in(Call& call, py::handle array) const {
        const Form& form = weights_form_of(array);
        const Memory data = call.operand("weights", array, form);
        if (&form == &weights_) return {.direct = data};
        if (!packed_as(array)) {
            throw py::value_error(
                "weights does not say how it was packed, expected what pack_weights returns: " +
                std::string(py::str(form.packed_as())));
        }
        return parts_of(data.data, form);
    }

    void transform(PassKind pass, const Weights& parts, const float* to) const {
        if (to != nullptr) core_.transform_weights(pass, parts.direct, const_cast<float*>(to));
    }

    const Form& relu_mask_ = forms_["relu_mask"];
    std::optional<Form> forward_weights_;
    std::optional<Form> all_weights_;
};

std::vector<PassKind> scheduled_passes(const Conv2d& conv) {
    if (conv.spec().shape.is_depthwise()) return {};
    return {kPassKinds.begin(), kPassKinds.end()};
}

// The algorithm of each pass: "direct", or "winograd" and the size of its tiles.
py::dict algorithms(const PyConv2d& conv) {
    py::dict names;
    for (const PassKind pass : kPassKinds)
        names[text_of(name_of(pass))] = conv.core().algorithm(pass);
    return names;
}

std::unique_ptr<PyConv2d> make(const std::string& algorithm, bool high_accuracy,
                               const std::array<std::int64_t, 16>& shape, const std::string& dtype,
                               const std::string& layout, const std::string& activation,
                               bool bias) {
    return std::make_unique<PyConv2d>(
        ConvSpec{.shape = conv_shape(shape),
                 .dtype = parse_dtype(dtype),
                 .layout = layout == "NHWC" ? Format::nhwc : Format::blocked,
                 .activation = parse_activation(activation),
                 .bias = bias,
                 .algorithm = parse_algorithm(algorithm),
                 .high_accuracy = high_accuracy});
}

}  // namespace

void register_conv2d(py::module_& module) {
    py::class_<PyConv2d> type(module, "Conv2d");
    type.def(py::init(&make))
        .def("forward", &PyConv2d::forward)
        .def("backward_data", &PyConv2d::backward_data)
        .def("backward_weights", &PyConv2d::backward_weights)
        .def("backward_activation", &PyConv2d::backward_activation)
        .def("pack_weights", &PyConv2d::pack_weights)
        .def_property_readonly("weights_shapes", &PyConv2d::weights_shapes)
        .def_property_readonly("algorithms", algorithms)
        .def_property_readonly("scratch_bytes",
                               [](const PyConv2d& conv) {
                                   py::dict bytes = scratch_by_pass(conv, kPassKinds);
                                   bytes["backward_relu"] = conv.core().relu_scratch_bytes();
                                   return bytes;
                               })
        .def_property_readonly(
            "flops", [](const PyConv2d& conv) { return conv.core().spec().shape.flops(); });
    define_schedules(type, kPassKinds, scheduled_passes);
    define_forms(type);
}

}  // namespace dlprim::bindings
