#include "rows/row_builder.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <stdexcept>

namespace dlprim {

RowValue RowBuilder::tensor(DType dtype) { return operand({RowShape::tensor, dtype, false}); }

RowValue RowBuilder::column(DType dtype) { return operand({RowShape::column, dtype, false}); }

RowValue RowBuilder::per_row() { return operand({RowShape::row, DType::f32, false}); }

RowValue RowBuilder::scalar() { return operand({RowShape::scalar, DType::f32, false}); }

RowValue RowBuilder::listed(DType dtype) { return operand({RowShape::listed, dtype, false}); }

RowValue RowBuilder::factor() { return instruction({.op = RowOp::factor}); }

RowValue RowBuilder::number() { return instruction({.op = RowOp::number}); }

// Not instruction(): two that begin alike are two.
RowValue RowBuilder::carried(float initial) {
    spec_.instructions.push_back(
        {.op = RowOp::carried, .bits = std::bit_cast<std::uint32_t>(initial)});
    return {this, static_cast<std::int16_t>(spec_.instructions.size() - 1)};
}

void RowBuilder::carry(RowValue carried, RowValue next) {
    RowInstruction it{.op = RowOp::carry};
    it.inputs[0] = index_of(next);
    it.bits = static_cast<std::uint32_t>(index_of(carried));
    spec_.instructions.push_back(it);
}

RowValue RowBuilder::add_chosen(RowValue wanted, RowValue x, RowValue total) {
    RowInstruction it{.op = RowOp::add_chosen,
                      .detail = static_cast<std::uint8_t>(spec_.operands.size())};
    spec_.operands.push_back({RowShape::listed, DType::u8, false});
    it.inputs = {index_of(wanted), index_of(x), index_of(total), kNoValue};
    return instruction(it);
}

std::uint8_t RowBuilder::bits() {
    spec_.operands.push_back({RowShape::bits, DType::u8, false});
    return static_cast<std::uint8_t>(spec_.operands.size() - 1);
}

RowValue RowBuilder::gated(std::uint8_t bits, RowValue value) {
    RowInstruction it{.op = RowOp::gate, .detail = bits};
    it.inputs[0] = index_of(value);
    return instruction(it);
}

std::uint8_t RowBuilder::parts(DType dtype, bool written) {
    spec_.operands.push_back({RowShape::tensor, dtype, written});
    return static_cast<std::uint8_t>(spec_.operands.size() - 1);
}

RowValue RowBuilder::load(std::uint8_t parts, std::int64_t distance) {
    return part(RowOp::load, parts, distance);
}

void RowBuilder::store(std::uint8_t parts, std::int64_t distance, RowValue value) {
    const std::int16_t stored = index_of(value);
    part(RowOp::store, parts, distance);
    spec_.instructions.back().inputs[0] = stored;
}

void RowBuilder::fetch(std::uint8_t parts, std::int64_t distance) {
    part(RowOp::fetch, parts, distance);
}

// Not instruction(): two loads of the same are two.
RowValue RowBuilder::part(RowOp op, std::uint8_t parts, std::int64_t distance) {
    const std::int64_t bytes = distance * size_of(spec_.operands.at(parts).dtype);
    if (bytes != static_cast<std::int32_t>(bytes)) {
        throw std::invalid_argument("a part of a row lies " + std::to_string(bytes) +
                                    " bytes from it, expected less than 2 GB");
    }
    spec_.instructions.push_back(
        {.op = op, .detail = parts, .distance = static_cast<std::int32_t>(distance)});
    return {this, static_cast<std::int16_t>(spec_.instructions.size() - 1)};
}

RowValue RowBuilder::columns() { return instruction({.op = RowOp::columns}); }

void RowBuilder::store(DType dtype, RowValue value) {
    write({RowShape::tensor, dtype, true}, RowOp::store, value);
}

void RowBuilder::store_per_row(RowValue value) {
    write({RowShape::row, DType::f32, true}, RowOp::store, value);
}

void RowBuilder::add_to_column(RowValue value) {
    write({RowShape::column, DType::f32, true}, RowOp::add_to_column, value);
}

void RowBuilder::store_bits(RowValue value) {
    write({RowShape::bits, DType::u8, true}, RowOp::store_bits, value);
}

void RowBuilder::fetch(DType dtype) {
    spec_.operands.push_back({RowShape::tensor, dtype, false});
    const auto operand = static_cast<std::uint8_t>(spec_.operands.size() - 1);
    spec_.instructions.push_back({.op = RowOp::fetch, .detail = operand});
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
    RowInstruction it{.op = op, .detail = detail};
    std::size_t count = 0;
    for (const RowValue input : inputs) it.inputs.at(count++) = known->builder_->index_of(input);
    return known->builder_->instruction(it);
}

RowValue RowBuilder::operand(RowOperand operand) {
    RowValue value(this, kNoValue);
    value.operand_ = static_cast<std::int16_t>(spec_.operands.size());
    read_.push_back(spec_.operands.size());
    spec_.operands.push_back(operand);
    return value;
}

RowValue RowBuilder::loaded(std::size_t operand) {
    return instruction({.op = RowOp::load, .detail = static_cast<std::uint8_t>(operand)});
}

void RowBuilder::write(RowOperand operand, RowOp op, RowValue value) {
    for (const std::size_t read : read_) {
        if (spec_.operands[read].dtype == operand.dtype) loaded(read);
    }
    spec_.operands.push_back(operand);
    RowInstruction it{.op = op, .detail = static_cast<std::uint8_t>(spec_.operands.size() - 1)};
    it.inputs[0] = index_of(value);
    spec_.instructions.push_back(it);
}

// The same one stands behind its inputs.
RowValue RowBuilder::instruction(const RowInstruction& it) {
    const auto begin = spec_.instructions.begin();
    const auto first = begin + *std::max_element(it.inputs.begin(), it.inputs.end()) + 1;
    const auto found = std::find(first, spec_.instructions.end(), it);
    const auto index = static_cast<std::int16_t>(found - begin);
    if (found == spec_.instructions.end()) spec_.instructions.push_back(it);
    return {this, index};
}

std::int16_t RowBuilder::index_of(RowValue value) {
    if (value.builder_ == nullptr) {
        return instruction(
                   {.op = RowOp::constant, .bits = std::bit_cast<std::uint32_t>(value.number_)})
            .index_;
    }
    if (value.builder_ != this) {
        throw std::invalid_argument("an operation has values of two row programs");
    }
    if (value.operand_ == kNoValue) return value.index_;
    return loaded(static_cast<std::size_t>(value.operand_)).index_;
}

}  // namespace dlprim
