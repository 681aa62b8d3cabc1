#include "primitives/conv/conv_shape.h"

#include <array>
#include <stdexcept>
#include <string>

namespace dlprim {
namespace {

// Small enough for spans and byte offsets of 64 bits, whatever is computed from the extents.
constexpr std::int64_t kMostExtent = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

std::string named(const char* name, std::int64_t value) {
    return std::string(name) + "=" + std::to_string(value);
}

void require(const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least && value <= kMostExtent) return;
    throw std::invalid_argument(named(name, value) + ", expected an integer from " +
                                std::to_string(least) + " to 2^31 - 1");
}

void require_extents(const ConvShape& shape) {
    require("N", shape.N, 0);
    require("C", shape.C, 1);
    require("H", shape.H, 1);
    require("W", shape.W, 1);
    require("K", shape.K, 1);
    require("R", shape.R, 1);
    require("S", shape.S, 1);
    require("stride_h", shape.stride_h, 1);
    require("stride_w", shape.stride_w, 1);
    require("pad_top", shape.pad_top, 0);
    require("pad_bottom", shape.pad_bottom, 0);
    require("pad_left", shape.pad_left, 0);
    require("pad_right", shape.pad_right, 0);
    require("dilation_h", shape.dilation_h, 1);
    require("dilation_w", shape.dilation_w, 1);
    require("groups", shape.groups, 1);
}

void require_groups(const char* name, std::int64_t channels, std::int64_t groups) {
    if (channels % groups == 0) return;
    throw std::invalid_argument(named("groups", groups) + " must divide " + named(name, channels) +
                                ", but a remainder of " + std::to_string(channels % groups) +
                                " is left");
}

// One direction of the filter, with the names that the sentence needs.
struct Extent {
    const char* units;
    const char* filter_name;
    std::int64_t filter;
    const char* dilation_name;
    std::int64_t dilation;
    const char* input_name;
    std::int64_t input;
    std::int64_t padding;  // of both sides
};

void require_fit(const Extent& extent) {
    const std::int64_t covered = (extent.filter - 1) * extent.dilation + 1;
    const std::int64_t padded = extent.input + extent.padding;
    if (covered <= padded) return;
    throw std::invalid_argument("the filter covers " + std::to_string(covered) + " " +
                                extent.units + " (" + named(extent.filter_name, extent.filter) +
                                ", " + named(extent.dilation_name, extent.dilation) +
                                "), but the padded input has only " + std::to_string(padded) +
                                " (" + named(extent.input_name, extent.input) + ", padding " +
                                std::to_string(extent.padding) + ")");
}

struct NamedExtent {
    const char* name;
    std::int64_t extent;
};

void require_size(const char* tensor, const std::array<NamedExtent, 4>& dimensions) {
    std::int64_t elements = 1;
    std::string shown;
    bool fits = true;
    for (const NamedExtent& dimension : dimensions) {
        shown += (shown.empty() ? "" : ", ") + named(dimension.name, dimension.extent);
        // An empty dimension never undoes an excess before it: strides are products as well.
        const std::int64_t factor = dimension.extent == 0 ? 1 : dimension.extent;
        fits = fits && elements <= kMostElements / factor;
        if (fits) elements *= factor;
    }
    if (fits) return;
    throw std::invalid_argument(std::string(tensor) + " of " + shown +
                                " would have more than 2^40 elements");
}

}  // namespace

double ConvShape::flops() const {
    const auto outputs = static_cast<double>(N * K) * static_cast<double>(P() * Q());
    return 2 * outputs * static_cast<double>(group_C() * R) * static_cast<double>(S);
}

ConvShape validated(const ConvShape& shape) {
    require_extents(shape);
    require_groups("C", shape.C, shape.groups);
    require_groups("K", shape.K, shape.groups);
    require_fit({"rows", "R", shape.R, "dilation_h", shape.dilation_h, "H", shape.H,
                 shape.pad_top + shape.pad_bottom});
    require_fit({"columns", "S", shape.S, "dilation_w", shape.dilation_w, "W", shape.W,
                 shape.pad_left + shape.pad_right});
    require_size("src", {{{"N", shape.N}, {"C", shape.C}, {"H", shape.H}, {"W", shape.W}}});
    require_size("dst", {{{"N", shape.N}, {"K", shape.K}, {"P", shape.P()}, {"Q", shape.Q()}}});
    require_size("weights",
                 {{{"K", shape.K}, {"C/groups", shape.group_C()}, {"R", shape.R}, {"S", shape.S}}});
    return shape;
}

}  // namespace dlprim
