#include "primitives/rnn/rnn_shape.h"

#include <stdexcept>
#include <string>

#include "primitives/tensor/channel_blocks.h"

namespace dlprim {
namespace {

// Bound of every extent; products of two of them are counted in 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 24;

void require(const char* name, std::int64_t extent, std::int64_t least) {
    if (extent >= least && extent <= kMost) return;
    throw std::invalid_argument(std::string(name) + " is " + std::to_string(extent) +
                                ", expected an integer from " + std::to_string(least) + " to 2^24");
}

}  // namespace

std::string_view name_of(RnnCell cell) { return cell == RnnCell::lstm ? "lstm" : "gru"; }

Panels panels_of(std::int64_t channels) { return {channels, panel_width(channels)}; }

std::int64_t most_line_width(DType dtype, const Machine& machine) {
    constexpr std::int64_t kLine = 16;
    return dtype == DType::f32 && machine.few_registers() ? kLine : kMostPanelWidth;
}

double RnnShape::flops() const {
    return 2.0 * static_cast<double>(rows()) * static_cast<double>(gates() * K) *
           static_cast<double>(C + K);
}

RnnShape validated(const RnnShape& shape) {
    require("T", shape.T, 0);
    require("N", shape.N, 0);
    require("C", shape.C, 1);
    require("K", shape.K, 1);
    if (shape.rows() > kMost) {
        throw std::invalid_argument("T * N is " + std::to_string(shape.rows()) +
                                    ", expected at most 2^24");
    }
    return shape;
}

}  // namespace dlprim
