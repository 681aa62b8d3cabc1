#include "primitives/rnn/rnn_shape.h"

#include <cstddef>
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

GateCurve parse_gate_curve(std::string_view name) {
    std::string names;
    for (std::size_t place = 1; place < kGateCurves.size(); ++place) {
        if (kGateCurves.at(place) == name) return static_cast<GateCurve>(place);
        names += (names.empty() ? "" : ", ") + std::string(kGateCurves.at(place));
    }
    throw std::invalid_argument("a function of a gate is '" + std::string(name) +
                                "', expected one of " + names);
}

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
    const CellForm& form = shape.form;
    if ((form.input_forget || form.peepholes) && shape.cell != RnnCell::lstm) {
        throw std::invalid_argument("input_forget and peepholes are an LSTM's, the cell is " +
                                    std::string(name_of(shape.cell)));
    }
    if (!form.reset_after && shape.cell != RnnCell::gru) {
        throw std::invalid_argument("reset_after is a GRU's, the cell is " +
                                    std::string(name_of(shape.cell)));
    }
    if (!(form.clip >= 0)) {
        throw std::invalid_argument("clip is " + std::to_string(form.clip) +
                                    ", expected a number of at least 0");
    }
    return shape;
}

void require_backward(const RnnShape& shape) {
    if (shape.has_backward()) return;
    throw std::invalid_argument(
        "this " + std::string(name_of(shape.cell)) +
        " has no backward pass, expected a cell with its own functions, or relu in a plain one, "
        "without clip, peepholes and input_forget; a GRU resets after the product");
}

void require_lengths(const RnnShape& shape, const std::int64_t* lengths) {
    for (std::int64_t n = 0; n < shape.N; ++n) {
        if (lengths[n] >= 0 && lengths[n] <= shape.T) continue;
        throw std::invalid_argument(
            "lengths[" + std::to_string(n) + "] is " + std::to_string(lengths[n]) +
            ", expected an integer from 0 to T = " + std::to_string(shape.T));
    }
}

}  // namespace dlprim
