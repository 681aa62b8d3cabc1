#include "conv_shapes.h"

#include <cstdint>

namespace dlprim::testing {

ConvShape drawn_conv_shape(std::mt19937& random) {
    const auto from = [&](int low, int high) {
        return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
    };
    for (;;) {
        ConvShape shape{.N = from(1, 3), .H = from(1, 11), .W = from(1, 11)};
        shape.groups = random() % 3 == 0 ? from(2, 3) : 1;
        const bool few = random() % 3 == 0;
        shape.C = shape.groups * (few ? from(1, 9) : from(1, random() % 4 == 0 ? 140 : 40));
        shape.K = shape.groups * from(1, random() % 4 == 0 ? 140 : 40);
        shape.R = random() % 3 == 0 ? 1 : from(1, 5);
        shape.S = random() % 3 == 0 ? from(1, 7) : shape.R;
        shape.stride_h = random() % 2 == 0 ? 1 : from(1, 3);
        shape.stride_w = random() % 4 == 0 ? from(1, 4) : shape.stride_h;
        shape.pad_top = from(0, 3);
        shape.pad_bottom = from(0, 5);
        shape.pad_left = random() % 4 == 0 ? from(0, 6) : shape.pad_top;
        shape.pad_right = from(0, 3);
        shape.dilation_h = random() % 3 == 0 ? 2 : 1;
        shape.dilation_w = random() % 3 == 0 ? from(1, 3) : 1;
        if (random() % 4 == 0) {
            shape.R = shape.S = shape.stride_h = shape.stride_w = 1;
            shape.pad_top = shape.pad_bottom = shape.pad_left = shape.pad_right = 0;
        }
        const bool fits_down =
            shape.H + shape.pad_top + shape.pad_bottom > (shape.R - 1) * shape.dilation_h;
        const bool fits_across =
            shape.W + shape.pad_left + shape.pad_right > (shape.S - 1) * shape.dilation_w;
        if (fits_down && fits_across && !shape.is_depthwise()) return shape;
    }
}

ConvShape several_blocks() {
    return validated({.N = 2,
                      .C = 70,
                      .H = 6,
                      .W = 7,
                      .K = 75,
                      .R = 3,
                      .S = 3,
                      .pad_top = 1,
                      .pad_bottom = 1,
                      .pad_left = 1,
                      .pad_right = 1});
}

ConvShape first_layer() {
    return validated({.N = 2,
                      .C = 3,
                      .H = 17,
                      .W = 19,
                      .K = 70,
                      .R = 7,
                      .S = 7,
                      .stride_h = 2,
                      .stride_w = 2,
                      .pad_top = 3,
                      .pad_bottom = 3,
                      .pad_left = 3,
                      .pad_right = 3});
}

ConvShape pointwise() {
    return validated({.N = 4, .C = 70, .H = 28, .W = 9, .K = 33, .R = 1, .S = 1});
}

std::string text_of(const ConvShape& it) {
    std::string text = "N C H W, K R S, strides, pads, dilations, groups:";
    for (const std::int64_t value :
         {it.N, it.C, it.H, it.W, it.K, it.R, it.S, it.stride_h, it.stride_w, it.pad_top,
          it.pad_bottom, it.pad_left, it.pad_right, it.dilation_h, it.dilation_w, it.groups}) {
        text += " " + std::to_string(value);
    }
    return text;
}

}  // namespace dlprim::testing
