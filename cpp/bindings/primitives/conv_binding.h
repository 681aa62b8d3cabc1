// What both bindings of convolutions, on packed arrays and on plain ones, are made from.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bindings/primitives/primitive.h"
#include "primitives/conv/conv2d.h"

namespace dlprim::bindings {

// The fields of ConvShape in their order.
inline ConvShape conv_shape(const std::array<std::int64_t, 16>& it) {
    return {it[0], it[1], it[2],  it[3],  it[4],  it[5],  it[6],  it[7],
            it[8], it[9], it[10], it[11], it[12], it[13], it[14], it[15]};
}

inline ConvAlgorithm parse_algorithm(const std::string& name) {
    if (name == "winograd") return ConvAlgorithm::winograd;
    return name == "auto" ? ConvAlgorithm::automatic : ConvAlgorithm::direct;
}

inline std::vector<TensorForm> conv_forms_of(const ConvSpec& spec) {
    return conv_forms(spec.problem());
}

inline std::vector<PassKind> scheduled_passes(const Conv2d& conv) {
    if (conv.spec().shape.is_depthwise()) return {};
    return conv.passes();
}

// The algorithm of each pass: "direct", or "winograd" and the size of its tiles.
template <class Bound>
py::dict algorithms(const Bound& conv) {
    const Conv2d& core = conv.core();
    return by_pass(core.passes(), [&](PassKind pass) { return core.algorithm(pass); });
}

template <class Bound>
std::unique_ptr<Bound> made_convolution(const std::string& algorithm, bool high_accuracy,
                                        const std::array<std::int64_t, 16>& shape,
                                        const std::string& dtype, const std::string& dst_dtype,
                                        const std::string& layout, const std::string& activation,
                                        bool bias) {
    return std::make_unique<Bound>(
        ConvSpec{.shape = conv_shape(shape),
                 .dtype = parse_dtype(dtype),
                 .dst_dtype = parse_dtype(dst_dtype),
                 .layout = layout == "NHWC" ? Format::nhwc : Format::blocked,
                 .activation = parse_activation(activation),
                 .bias = bias,
                 .int_bias = is_int8(parse_dtype(dtype)),
                 .algorithm = parse_algorithm(algorithm),
                 .high_accuracy = high_accuracy});
}

// Those on plain arrays, a part of register_conv2d().
void register_plain_conv2d(py::module_& module);

}  // namespace dlprim::bindings
