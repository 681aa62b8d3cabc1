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

RowValue RowBuilder::columns() { return instruction({.op = RowOp::columns}); }

RowValue RowBuilder::constant(float number) { return {this, index_of(number)}; }

void RowBuilder::store(DType dtype, RowValue value) {
    write(RowOp::store, result(RowShape::tensor, dtype), 0, value);
}

void RowBuilder::store_per_row(RowValue value) {
    write(RowOp::store, result(RowShape::row, DType::f32), 0, value);
}

void RowBuilder::add_to_column(RowValue value) {
    write(RowOp::add_to_column, result(RowShape::column, DType::f32), 0, value);
}

void RowBuilder::store_bits(RowValue value) {
    write(RowOp::store_bits, result(RowShape::bits, DType::u8), 0, value);
}

std::uint8_t RowBuilder::result(RowShape shape, DType dtype) {
    spec_.operands.push_back({shape, dtype, true});
    return static_cast<std::uint8_t>(spec_.operands.size() - 1);
}

std::uint8_t RowBuilder::fetch(DType dtype) {
    const std::uint8_t tensor = parts(dtype);
    fetch(tensor, 0);
    return tensor;
}

void RowBuilder::fetch(std::uint8_t tensor, std::int64_t offset) {
    spec_.instructions.push_back({.op = RowOp::fetch, .detail = tensor, .offset = near(offset)});
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

RowValue RowBuilder::at(RowValue operand, std::int64_t offset) {
    const auto index = static_cast<std::size_t>(operand.operand_);
    std::erase(read_, index);
    return loaded(index, offset);
}

std::uint8_t RowBuilder::parts(DType dtype) {
    spec_.operands.push_back({RowShape::tensor, dtype, false});
    return static_cast<std::uint8_t>(spec_.operands.size() - 1);
}

// Not instruction(): two loads of the same are two.
RowValue RowBuilder::load(std::uint8_t parts, std::int64_t offset) {
    spec_.instructions.push_back({.op = RowOp::load, .detail = parts, .offset = near(offset)});
    return {this, static_cast<std::int16_t>(spec_.instructions.size() - 1)};
}

RowValue RowBuilder::loaded(std::size_t operand, std::int64_t offset) {
    return instruction(
        {.op = RowOp::load, .detail = static_cast<std::uint8_t>(operand), .offset = near(offset)});
}

void RowBuilder::write(RowOp op, std::uint8_t result, std::int64_t offset, RowValue value) {
    for (const std::size_t read : read_) {
        if (spec_.operands[read].dtype == spec_.operands.at(result).dtype) loaded(read);
    }
    RowInstruction it{.op = op, .detail = result, .offset = near(offset)};
    it.inputs[0] = index_of(value);
    spec_.instructions.push_back(it);
}

// The same one stands behind its inputs.
RowValue RowBuilder::instruction(const RowInstruction& it) {
    const auto begin = spec_.instructions.begin();
    const auto first = begin + (*std::max_element(it.inputs.begin(), it.inputs.end()) + 1);
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
