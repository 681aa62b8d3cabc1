#include "primitives/mapping/instruction_form.h"

#include <algorithm>
#include <stdexcept>

#include "lang/parser.h"

namespace dlprim {
namespace {

// More products than any instruction has.
constexpr std::int64_t kManyRows = 1024;

bool has_place(const Expression& read, const std::string& index) {
    return std::any_of(read.operands.begin(), read.operands.end(),
                       [&](const Expression& place) { return place.name == index; });
}

const std::vector<InstructionForm>& all_forms() {
    static const std::vector<InstructionForm> forms(instructions().begin(), instructions().end());
    return forms;
}

}  // namespace

LoopRole role_of(bool c, bool a, bool b) {
    if (a && b) return c ? LoopRole::apart : LoopRole::sum;
    if (c && a) return LoopRole::row;
    return c && b ? LoopRole::column : LoopRole::none;
}

InstructionForm::InstructionForm(const Instruction& what) : what_(&what) {
    const Statement statement = parse_statement(what.statement);
    const Expression &a = statement.value.operands.at(0), &b = statement.value.operands.at(1);
    for (const RangeClause& range : statement.ranges) {
        loops_.push_back({.name = range.index,
                          .extent = static_cast<std::int64_t>(range.end.number),
                          .role = role_of(has_place(statement.target, range.index),
                                          has_place(a, range.index), has_place(b, range.index))});
    }
    a_ = places_of(a, what.a_type);
    b_ = places_of(b, what.b_type);
    c_ = places_of(statement.target, what.c_type);
    const auto column = std::find_if(b_.begin(), b_.end(), [](const InstructionPlace& it) {
        return it.role == LoopRole::column;
    });
    if (column != b_.end()) word_ = column->stride;
}

std::vector<InstructionPlace> InstructionForm::places_of(const Expression& operand,
                                                         DType dtype) const {
    std::vector<InstructionPlace> places;
    std::int64_t stride = 1;
    for (auto place = operand.operands.rbegin(); place != operand.operands.rend(); ++place) {
        const auto loop =
            std::find_if(loops_.begin(), loops_.end(),
                         [&](const InstructionLoop& it) { return it.name == place->name; });
        places.push_back({loop->role, stride, stride * size_of(dtype) >= what_->row_bytes});
        stride *= loop->extent;
    }
    std::reverse(places.begin(), places.end());
    return places;
}

bool InstructionForm::has(LoopRole role) const {
    return std::any_of(loops_.begin(), loops_.end(),
                       [&](const InstructionLoop& it) { return it.role == role; });
}

std::int64_t InstructionForm::extent(LoopRole role) const {
    std::int64_t product = 1;
    for (const InstructionLoop& it : loops_) product *= it.role == role ? it.extent : 1;
    return product;
}

double InstructionForm::products() const {
    double product = 1;
    for (const InstructionLoop& it : loops_) product *= static_cast<double>(it.extent);
    return product;
}

double InstructionForm::starts_per_cycle(const Machine& machine) const {
    if (what_->starts_per_cycle > 0) return what_->starts_per_cycle;
    return machine.sustained_fmas_per_cycle / (what_->cost.passes * what_->cost.instructions);
}

std::string InstructionForm::described() const {
    return std::string(what_->name) + ": " + std::string(what_->statement);
}

const InstructionForm& instruction_named(std::string_view name) {
    std::string known;
    for (const InstructionForm& it : all_forms()) {
        if (it.what().name == name) return it;
        known += (known.empty() ? "" : ", ") + std::string(it.what().name);
    }
    throw std::invalid_argument("instruction is '" + std::string(name) + "', expected one of " +
                                known);
}

const InstructionForm& instruction_for(DType a_type, DType b_type, Isa isa) {
    BrgemmSpec spec;
    spec.m = spec.n = spec.k = kManyRows;
    spec.a_type = a_type;
    spec.b_type = b_type;
    const Instruction& found = instruction_of(spec, isa);
    return all_forms()[static_cast<std::size_t>(&found - instructions().data())];
}

}  // namespace dlprim
