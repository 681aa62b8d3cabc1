// The convolutions that several suites run.
#pragma once

#include <random>
#include <string>

#include <doctest/doctest.h>

#include "primitives/conv/conv2d.h"

namespace dlprim::testing {

// A small shape that is possible; all channels in one group or in several, never depthwise.
ConvShape drawn_conv_shape(std::mt19937& random);

// Several blocks of both channels, taps that reach over every rim, a ragged last block.
ConvShape several_blocks();
// An image of three channels under a large filter, as networks begin with: windows in both
// gradients.
ConvShape first_layer();
// Rows that can be cut anywhere.
ConvShape pointwise();

std::string text_of(const ConvShape& shape);

// body(ConvSpec) for both element types in both layouts.
template <class Body>
void for_specs(const ConvShape& shape, const Body& body) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const Format layout : {Format::blocked, Format::nhwc}) {
            const bool nhwc = layout == Format::nhwc;
            CAPTURE(text_of(shape));
            CAPTURE(name_of(dtype));
            CAPTURE(nhwc);
            body(ConvSpec{.shape = shape, .dtype = dtype, .layout = layout});
        }
    }
}

}  // namespace dlprim::testing
