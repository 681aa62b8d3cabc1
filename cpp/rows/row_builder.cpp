#include "rows/row_builder.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <stdexcept>

namespace dlprim {
namespace {

std::int32_t near(std::int64_t offset) {
    const auto reached = static_cast<std::int32_t>(offset);
    if (reached != offset) {
        throw std::invalid_argument("a row program looks " + std::to_string(offset) +
                                    " bytes from an element, expected less than 2^31");
    }
    return reached;
}

}  // namespace

RowValue RowBuilder::carried(float initial) {
    return another({.op = RowOp::carried, .bits = std::bit_cast<std::uint32_t>(initial)});
}

void RowBuilder::carry(RowValue carried, RowValue next) {
    another({.op = RowOp::carry,
             .inputs = indices_of({next}),
             .bits = static_cast<std::uint32_t>(index_of(carried))});
}

std::uint8_t RowBuilder::fetch(DType dtype) {
    const std::uint8_t tensor = parts(dtype);
    fetch(tensor, 0);
    return tensor;
}

void RowBuilder::fetch(std::uint8_t tensor, std::int64_t offset) {
    another({.op = RowOp::fetch, .detail = tensor, .offset = near(offset)});
}

void RowBuilder::take_at_most(std::int32_t vectors) {
    if (vectors < 1 || !std::has_single_bit(static_cast<unsigned>(vectors))) {
        throw std::invalid_argument("a row program takes at most " + std::to_string(vectors) +
                                    " vectors together, expected a power of two");
    }
    spec_.most_vectors = vectors;
}

RowSpec RowBuilder::spec() const {
    validate(spec_);
    return spec_;
}

RowValue RowBuilder::apply(RowOp op, std::initializer_list<RowValue> inputs, std::uint8_t detail) {
    const auto* const known = std::find_if(inputs.begin(), inputs.end(), [](const RowValue& input) {
        return input.builder_ != nullptr;
    });
    if (known == inputs.end()) {
        throw std::invalid_argument("an operation of a row program has numbers only");
    }
    return known->builder_->made(op, inputs, detail);
}

RowValue RowBuilder::made(RowOp op, std::initializer_list<RowValue> inputs, std::uint8_t detail) {
    return instruction({.op = op, .inputs = indices_of(inputs), .detail = detail});
}

std::uint8_t RowBuilder::named(RowOperand operand) {
    spec_.operands.push_back(operand);
    return static_cast<std::uint8_t>(spec_.operands.size() - 1);
}

RowValue RowBuilder::loadable(RowOperand operand) {
    RowValue value(this, kNoValue);
    value.operand_ = named(operand);
    read_.push_back(spec_.operands.size() - 1);
    return value;
}

RowValue RowBuilder::at(RowValue operand, std::int64_t offset) {
    const auto index = static_cast<std::size_t>(operand.operand_);
    std::erase(read_, index);
    return loaded(index, offset);
}

RowValue RowBuilder::load(std::uint8_t parts, std::int64_t offset) {
    return another({.op = RowOp::load, .detail = parts, .offset = near(offset)});
}

RowValue RowBuilder::loaded(std::size_t operand, std::int64_t offset) {
    return instruction(
        {.op = RowOp::load, .detail = static_cast<std::uint8_t>(operand), .offset = near(offset)});
}

void RowBuilder::write(RowOp op, std::uint8_t result, std::int64_t offset, RowValue value) {
    for (const std::size_t read : read_) {
        if (spec_.operands[read].dtype == spec_.operands.at(result).dtype) loaded(read);
    }
    another({.op = op, .inputs = indices_of({value}), .detail = result, .offset = near(offset)});
}

// The same one stands behind its inputs.
RowValue RowBuilder::instruction(const RowInstruction& it) {
    const auto begin = spec_.instructions.begin();
    const auto first = begin + (*std::max_element(it.inputs.begin(), it.inputs.end()) + 1);
    const auto found = std::find(first, spec_.instructions.end(), it);
    if (found == spec_.instructions.end()) return another(it);
    return {this, static_cast<std::int16_t>(found - begin)};
}

RowValue RowBuilder::another(const RowInstruction& it) {
    spec_.instructions.push_back(it);
    return {this, static_cast<std::int16_t>(spec_.instructions.size() - 1)};
}

decltype(RowInstruction::inputs) RowBuilder::indices_of(std::initializer_list<RowValue> values) {
    auto indices = RowInstruction().inputs;
    std::size_t count = 0;
    for (const RowValue value : values) indices.at(count++) = index_of(value);
    return indices;
}

std::int16_t RowBuilder::index_of(RowValue value) {
    if (value.builder_ == nullptr) {
        const auto bits = std::bit_cast<std::uint32_t>(value.number_);
        return instruction({.op = RowOp::constant, .bits = bits}).index_;
    }
    if (value.builder_ != this) {
        throw std::invalid_argument("an operation has values of two row programs");
    }
    if (value.operand_ == kNoValue) return value.index_;
    return loaded(static_cast<std::size_t>(value.operand_)).index_;
}

RowSpec streaming(RowSpec spec) {
    for (RowInstruction& it : spec.instructions) {
        if (it.op != RowOp::store || it.offset != 0) continue;
        const RowOperand& operand = spec.operands[it.detail];
        if (operand.shape == RowShape::tensor && operand.dtype == DType::f32) it.bits = 1;
    }
    return spec;
}

}  // namespace dlprim
