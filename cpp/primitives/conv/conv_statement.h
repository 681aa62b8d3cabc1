// What the statements of all passes of a convolution have in common.
#pragma once

#include "primitives/conv/conv_contraction.h"
#include "primitives/nest/formula.h"
#include "primitives/tensor/layout.h"

namespace dlprim {

// Layouts of src and dst, or of their gradients, for the images of `shape`: (n, g, c, h, w) and
// (n, g, k, p, q).
struct ConvImages {
    ConvImages(const ConvProblem& problem, const ConvShape& shape);

    Layout src;
    Layout dst;
};

// u, v strides, d, e dilations, t, l padding in front: of rows and of pixels.
Constants geometry(const ConvShape& shape);

}  // namespace dlprim
