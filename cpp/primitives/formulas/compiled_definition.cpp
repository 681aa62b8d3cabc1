#include "primitives/formulas/compiled_definition.h"

#include <algorithm>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "lang/gathers.h"
#include "primitives/formulas/product_chain.h"
#include "primitives/formulas/row_fusion.h"
#include "primitives/formulas/statement_ends.h"
#include "primitives/mapping/instruction_form.h"
#include "primitives/products/product_run.h"
#include "primitives/programs/row_tasks.h"
#include "primitives/statements/row_statement.h"

namespace dlprim {
namespace {

double operations(const BoundStatement& statement) {
    double product = 2;
    for (const IndexRange& index : statement.indices) product *= static_cast<double>(index.extent);
    return product;
}

// Scratch that nothing has needed yet.
const ArrayPlace kNowhere = {.of = ArrayPlace::Of::scratch, .number = -1};

double bytes_of_result(const StatementBinding& binding) {
    return static_cast<double>(extent_of(binding.statement, false)) *
           static_cast<double>(size_of(binding.statement.result.dtype));
}

std::size_t position_of(const std::string& index, const std::vector<IndexRange>& indices) {
    const auto found = std::find_if(indices.begin(), indices.end(),
                                    [&](const IndexRange& it) { return it.name == index; });
    return static_cast<std::size_t>(found - indices.begin());
}

void set_moves(ArrayPlace& place, const BoundOperand& operand,
               const std::vector<std::size_t>& positions) {
    if (place.of == ArrayPlace::Of::own) return;
    for (const std::size_t i : positions) {
        place.moves.push_back(operand.strides[i] * size_of(operand.dtype));
    }
}

// Of the first values of the loops; its places move along them.
StatementBinding first_piece(StatementBinding binding, const std::vector<StepGroup::Loop>& loops) {
    for (StatementBinding& it : binding.next) it = first_piece(std::move(it), loops);
    std::vector<std::size_t> positions;
    for (const StepGroup::Loop& loop : loops) {
        positions.push_back(position_of(loop.index, binding.statement.indices));
        binding.statement =
            restricted(std::move(binding.statement), positions.back(), 0, loop.step);
    }
    for (std::size_t i = 0; i < binding.operands.size(); ++i) {
        set_moves(binding.operands[i], binding.statement.operands[i], positions);
    }
    set_moves(binding.result, binding.statement.result, positions);
    return binding;
}

}  // namespace

CompiledDefinition::CompiledDefinition(const Definition& definition, const Arrays& arrays)
    : symbols_(checked(definition)), definition_(definition), decisions_(arrays.choices) {
    Shapes shapes;
    for (const TensorView& parameter : arrays.parameters) shapes[parameter.name] = parameter.shape;
    for (const auto& [name, shape] : arrays.results) {
        const auto tensor = symbols_.tensors.find(name);
        if (tensor != symbols_.tensors.end() && tensor->second.is_in_out) shapes[name] = shape;
    }
    ranges_ = ranges_of(definition_, symbols_, shapes, arrays.given);
    definition_ = with_gathers_apart(definition_, symbols_, ranges_);
    if (definition_.statements.size() > definition.statements.size()) {
        symbols_ = checked(definition_);
        ranges_ = ranges_of(definition_, symbols_, shapes, arrays.given);
    }
    mentions_ = mentions_in(definition_);
    add_tensors(arrays);
    for (const StatementGroup& group : groups_of(definition_, ranges_)) {
        add_group(group, arrays.machine);
    }
}

void CompiledDefinition::add_tensor(TensorView view, const ArrayPlace& place) {
    numbers_.emplace(view.name, tensors_.size());
    tensors_.push_back({std::move(view), place});
}

void CompiledDefinition::add_tensors(const Arrays& arrays) {
    for (const TensorView& parameter : arrays.parameters) {
        const auto number = static_cast<std::int64_t>(tensors_.size());
        add_tensor(parameter, {.of = ArrayPlace::Of::parameter, .number = number});
    }
    for (const std::string& name : definition_.returns) {
        const std::size_t number = results_.size();
        const DType dtype =
            number < arrays.result_types.size() ? arrays.result_types[number] : arrays.result_type;
        results_.push_back(dense_view(name, dtype, ranges_.shapes.at(name)));
        add_tensor(results_.back(),
                   {.of = ArrayPlace::Of::result, .number = static_cast<std::int64_t>(number)});
    }
    for (const auto& [name, shape] : ranges_.shapes) {
        if (numbers_.contains(name)) continue;
        add_tensor(dense_view(name, type_of_temporary(name, arrays), shape), kNowhere);
    }
}

// What is copied from places that are read, and is nothing else, has the type of what it copies;
// results that are bytes are rounded once.
DType CompiledDefinition::type_of_temporary(const std::string& name, const Arrays& arrays) const {
    const DType computed = is_int8(arrays.result_type) ? DType::f32 : arrays.result_type;
    std::optional<DType> copied;
    const auto mentions = mentions_.find(name);
    if (mentions == mentions_.end()) return computed;
    for (const int number : mentions->second.writes) {
        const Statement& it = definition_.statements[static_cast<std::size_t>(number)];
        const auto source = std::find_if(
            arrays.parameters.begin(), arrays.parameters.end(),
            [&](const TensorView& parameter) { return parameter.name == it.value.name; });
        if (!gathers(it.value) || it.reduction != Reduction::none ||
            source == arrays.parameters.end() || source->dtype != copied.value_or(source->dtype)) {
            return computed;
        }
        copied = source->dtype;
    }
    return copied.value_or(computed);
}

bool CompiledDefinition::is_in_out(std::size_t result) const {
    return symbols_.tensors.at(results_[result].name).is_in_out;
}

ArrayPlace CompiledDefinition::scratch(std::int64_t bytes) {
    ArrayPlace made{.of = ArrayPlace::Of::scratch, .number = scratch_bytes_};
    scratch_bytes_ += aligned(bytes);
    return made;
}

StepGroup& CompiledDefinition::steps_in_turn() {
    if (groups_.empty() || groups_.back().has_loops()) groups_.emplace_back();
    return groups_.back();
}

const PlacedTensor& CompiledDefinition::placed(const std::string& name) {
    const std::size_t number = numbers_.find(name)->second;
    PlacedTensor& it = tensors_[number];
    if (it.place.number < 0) {
        it.place = scratch(checked_product(it.view.elements(), size_of(it.view.dtype)));
        given_.push_back(number);
    }
    return it;
}

void CompiledDefinition::forget_places(std::size_t given, std::int64_t scratch_bytes) {
    for (std::size_t i = given; i < given_.size(); ++i) tensors_[given_[i]].place = kNowhere;
    given_.resize(given);
    scratch_bytes_ = scratch_bytes;
}

std::vector<StatementBinding> CompiledDefinition::bound_group(
    const StatementGroup& group, const std::vector<PlacedTensor>& inner) {
    std::map<std::string_view, const PlacedTensor*> others;
    for (const PlacedTensor& it : inner) others.emplace(it.view.name, &it);
    const auto tensor = [&](const std::string& name) -> const PlacedTensor& {
        const auto found = others.find(name);
        return found == others.end() ? placed(name) : *found->second;
    };
    const BoundDefinition whole{definition_, symbols_, ranges_, tensor,
                                [this](std::int64_t bytes) { return scratch(bytes); }};
    std::vector<StatementBinding> made;
    for (int i = 0; i < group.count; ++i) made.push_back(bound(whole, group.first + i));
    return made;
}

void CompiledDefinition::add_group(const StatementGroup& group, const Machine& machine) {
    const std::size_t given = given_.size();
    const std::int64_t before = scratch_bytes_;
    auto bindings = bound_group(group, {});
    for (const StatementBinding& it : bindings) {
        flops_ += operations(it.statement);
        add_checks(it);
    }
    bindings = with_rows_fused(with_ends(std::move(bindings)));
    const auto loops = chosen_pieces(group, bindings, machine, decisions_);
    const std::vector<PlacedTensor> unstored = unstored_tensors(bindings);
    if (!loops.empty() || !unstored.empty()) forget_places(given, before);
    if (!loops.empty()) return add_pieces(group, loops);
    if (!unstored.empty()) bindings = with_rows_fused(with_ends(bound_group(group, unstored)));
    for (const StatementBinding& binding : bindings) {
        for (const Step& copy : binding.copies) steps_in_turn().add(copy);
        add_steps(steps_in_turn(), binding, [this](std::int64_t bytes) { return scratch(bytes); });
    }
}

std::vector<StatementBinding> CompiledDefinition::with_rows_fused(
    const std::vector<StatementBinding>& bindings) {
    const auto is_used = [this](const StatementBinding& it, int first, int last) {
        const auto& name = definition_.statements[static_cast<std::size_t>(it.number)].result;
        return it.result.of == ArrayPlace::Of::result || is_used_outside(name, first, last);
    };
    return dlprim::with_rows_fused(bindings, is_used, decisions_);
}

// In no memory: with places that tell them from each other.
std::vector<PlacedTensor> CompiledDefinition::unstored_tensors(
    const std::vector<StatementBinding>& bindings) const {
    std::vector<PlacedTensor> all;
    std::set<std::string_view> known;
    for (const int number : unstored_statements(bindings)) {
        const auto& name = definition_.statements[static_cast<std::size_t>(number)].result;
        if (!known.insert(name).second) continue;
        const ArrayPlace place{.of = ArrayPlace::Of::own, .number = -1 - std::ssize(all)};
        all.push_back({tensors_[numbers_.find(name)->second].view, place});
    }
    return all;
}

void CompiledDefinition::add_checks(const StatementBinding& binding) {
    for (std::size_t i = 0; i < binding.places.size(); ++i) {
        if (!binding.places[i].is_checked) continue;
        const std::size_t operand = i + 1;
        checks_.push_back(
            {binding.statement, operand, binding.operands[operand].number, binding.places[i]});
    }
}

void CompiledDefinition::require_places(std::span<const void* const> parameters) const {
    for (const Check& it : checks_) {
        const auto parameter = static_cast<std::size_t>(it.parameter);
        const auto [least, most] =
            outermost(it.statement, it.operand, parameters[parameter], it.place);
        if (least >= 0 && most < it.place.extent) continue;
        const std::int64_t last = it.place.extent - 1;
        throw std::out_of_range(tensors_[parameter].view.name + " has the place " +
                                std::to_string(least < 0 ? least : most) + ", expected " +
                                (last < 0 ? "none, as the dimension has an extent of 0"
                                          : "places from 0 to " + std::to_string(last)));
    }
}

bool CompiledDefinition::is_used_outside(const std::string& tensor, int first, int last) const {
    return mentions_.find(tensor)->second.outside(first, last);
}

// What nothing but the group uses, as large as a piece.
std::vector<PlacedTensor> CompiledDefinition::inner_tensors(const StatementGroup& group,
                                                            const Loops& loops,
                                                            StepGroup& to) const {
    std::vector<PlacedTensor> inner;
    const int last = group.first + group.count - 1;
    for (const PlacedTensor& it : tensors_) {
        const std::string& name = it.view.name;
        const auto mentions = mentions_.find(name);
        const bool is_inner = mentions != mentions_.end() && !mentions->second.writes.empty() &&
                              it.place.of == ArrayPlace::Of::scratch &&
                              !mentions->second.outside(group.first, last);
        if (!is_inner) continue;
        const auto writer = static_cast<std::size_t>(mentions->second.writes.front());
        Shape shape = it.view.shape;
        for (const StepGroup::Loop& loop : loops) {
            shape[place_alone(definition_.statements[writer], loop.index)] = loop.step;
        }
        TensorView view = dense_view(name, it.view.dtype, shape);
        const std::int64_t bytes = view.elements() * size_of(view.dtype);
        inner.push_back({std::move(view), to.own(bytes)});
    }
    return inner;
}

void CompiledDefinition::add_pieces(const StatementGroup& group, const Loops& loops) {
    Loops whole = loops, rest = loops;
    const std::int64_t extent = loops.back().end, step = loops.back().step;
    whole.back().end = rest.back().first = extent / step * step;
    rest.back().step = extent % step;
    for (const Loops& part : {whole, rest}) {
        if (part.back().first == part.back().end) continue;
        StepGroup made(part);
        auto bindings = with_ends(bound_group(group, inner_tensors(group, part, made)));
        StatementBinding& last = bindings.back();
        StatementBinding& stores = last.next.empty() ? last : last.next.back();
        stores.statement.leaves_caches = exceeds_caches(2 * bytes_of_result(last));
        for (StatementBinding& it : bindings) it = first_piece(std::move(it), part);
        for (const StatementBinding& binding : with_rows_fused(bindings)) {
            for (const Step& copy : binding.copies) steps_in_turn().add(copy);
            add_steps(made, binding, [&](std::int64_t bytes) { return made.own(bytes); });
        }
        groups_.push_back(std::move(made));
    }
}

void CompiledDefinition::add_steps(StepGroup& to, const StatementBinding& binding,
                                   const Scratch& scratch) {
    if (!binding.fused.empty()) return to.add(fused_step(binding));
    if (!binding.places.empty() && dlprim::extent_of(binding.statement, true) > 0) {
        to.add({.what = std::make_shared<const Gather>(binding.statement, binding.places),
                .operands = binding.operands,
                .result = binding.result,
                .statement = binding.number});
        return;
    }
    BoundStatement statement = binding.statement;
    if (!binding.places.empty()) {  // the sum of nothing
        statement.operands.clear();
        statement.value = {};
    }
    const std::vector<ChainStep> chain = chain_of(statement);
    std::vector<ArrayPlace> places = binding.operands;
    for (const ChainStep& link : chain) {
        Step step;
        step.statement = binding.number;
        BoundProduct product{.statement = link.statement};
        for (const int operand : link.operands) {
            step.operands.push_back(places.at(static_cast<std::size_t>(operand)));
        }
        if (step.operands.size() == 2) {
            product.uses_a = to.uses_of_packed(step.operands[0]);
            product.uses_b = to.uses_of_packed(step.operands[1]);
        }
        const bool is_last = &link == &chain.back();
        if (is_last) add_end(binding, product, step);
        step.result = is_last ? binding.result
                              : scratch(link.elements * size_of(link.statement.result.dtype));
        places.push_back(step.result);
        const auto link_number = std::to_string(&link - chain.data() + 1);
        ChosenRun run = chosen_run(
            product,
            std::to_string(binding.number + 1) + (chain.size() > 1 ? "." + link_number : ""),
            decisions_);
        step.what = std::move(run.what);
        step.why = std::move(run.why);
        to.add(std::move(step));
    }
}

void CompiledDefinition::run(std::span<const void* const> parameters,
                             std::span<void* const> results) const {
    require_places(parameters);
    const WorkspacePool::Lease own(*workspaces_, scratch_bytes_);
    for (const StepGroup& group : groups_) group.run({parameters, results, own.data()});
}

std::string CompiledDefinition::described(const Explained& asked) const {
    if (asked.instruction) instruction_named(*asked.instruction);  // refuses unknown ones
    std::string text;
    for (const StepGroup& group : groups_) text += group.described(asked);
    return text;
}

}  // namespace dlprim
