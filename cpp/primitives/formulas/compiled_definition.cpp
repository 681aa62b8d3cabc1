#include "primitives/formulas/compiled_definition.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "lang/affine.h"
#include "lang/lexer.h"

namespace dlprim {
namespace {

// Vectors at most, with which a matrix is multiplied by sums along its rows, and the
// multiplications of these in a cycle and the cycles of a call, about.
constexpr std::int64_t kFewVectors = 7;
constexpr double kRowLanes = 16;
constexpr double kRowCall = 500;

// Elements of a copy with zeros around it.
constexpr std::int64_t kMostPadded = std::int64_t{1} << 31;

// The cheapest way to compute a statement as a product of matrices; null where rows are cheaper.
std::shared_ptr<const ProductPass> product_of(const BoundStatement& statement) {
    const auto product = product_in(statement);
    if (!product || !product->is_of_matrices()) return {};
    const auto ways = product_ways(*product, this_machine());
    if (ways.empty()) return {};
    const bool few = std::min(extent_of(product->rows), extent_of(product->columns)) <= kFewVectors;
    const ProductIndex& inner = product->sums.back();
    if (few && inner.a == 1 && inner.b == 1 &&
        ways.front().cycles > product->flops() / 2 / kRowLanes + kRowCall) {
        return {};
    }
    return std::make_shared<const ProductPass>(*product, ways.front());
}

double operations(const BoundStatement& statement) {
    double product = 2;
    for (const IndexRange& index : statement.indices) product *= static_cast<double>(index.extent);
    return product;
}

}  // namespace

TensorView dense_view(std::string name, DType dtype, const Shape& shape) {
    TensorView made{std::move(name), dtype, shape, std::vector<std::int64_t>(shape.size())};
    std::int64_t stride = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
        made.strides[i] = stride;
        stride = checked_product(stride, std::max<std::int64_t>(shape[i], 1));
    }
    return made;
}

// Puts arrays in the place of names in one statement.
class CompiledDefinition::Binding {
public:
    Binding(CompiledDefinition& definition, int number)
        : it_(definition),
          number_(number),
          statement_(definition.definition_.statements.at(static_cast<std::size_t>(number))) {
        bound_.indices = definition.ranges_.statements.at(static_cast<std::size_t>(number));
        bound_.reduction = statement_.reduction;
        bound_.initializes = statement_.initializes;
        bound_.value = expression(statement_.value);
        const Array& result = it_.array_of(statement_.result);
        result_ = result.place;
        bound_.result = operand_of(result, places_of(statement_.target));
    }

    const BoundStatement& statement() const { return bound_; }
    const std::vector<Place>& operands() const { return operands_; }
    const Place& result() const { return result_; }

private:
    Expression expression(const Expression& from) {
        if (from.kind == Expression::Kind::name) {
            const auto size = it_.ranges_.sizes.find(from.name);
            if (size != it_.ranges_.sizes.end()) {
                return {.number = static_cast<double>(size->second), .is_integer = true};
            }
            return it_.symbols_.tensors.contains(from.name) ? read(from) : from;
        }
        if (from.kind == Expression::Kind::read) return read(from);
        Expression made = from;
        for (Expression& operand : made.operands) operand = expression(operand);
        return made;
    }

    std::vector<AffineSum> places_of(const Expression& read) const {
        std::vector<AffineSum> places;
        for (const Expression& place : read.operands) {
            auto sum = affine_of(place, it_.ranges_.sizes);
            if (!sum) {
                refuse_at(it_.definition_.text, place.position, "A place of ", read.name,
                          " is no sum of indices times numbers, which only the interpreter "
                          "computes");
            }
            places.push_back(*std::move(sum));
        }
        return places;
    }

    std::int64_t extent_of(const std::string& index) const {
        const auto found = std::find_if(bound_.indices.begin(), bound_.indices.end(),
                                        [&](const IndexRange& it) { return it.name == index; });
        return found->extent;
    }

    PlaceRange range_of(const AffineSum& place) const {
        PlaceRange made{place.constant, place.constant};
        for (const AffineTerm& term : place.terms) {
            const std::int64_t farthest = term.factor * (extent_of(term.index) - 1);
            (farthest < 0 ? made.first : made.last) += farthest;
        }
        return made;
    }

    BoundOperand operand_of(const Array& array, const std::vector<AffineSum>& places) const {
        BoundOperand made{.dtype = array.view.dtype};
        made.strides.assign(bound_.indices.size(), 0);
        for (std::size_t i = 0; i < places.size(); ++i) {
            made.offset += places[i].constant * array.view.strides[i];
            for (const AffineTerm& term : places[i].terms) {
                for (std::size_t index = 0; index < bound_.indices.size(); ++index) {
                    if (bound_.indices[index].name != term.index) continue;
                    made.strides[index] += term.factor * array.view.strides[i];
                }
            }
        }
        return made;
    }

    Expression read(const Expression& from) {
        Array array = it_.array_of(from.name);
        std::vector<AffineSum> places = places_of(from);
        const bool is_empty = std::any_of(bound_.indices.begin(), bound_.indices.end(),
                                          [](const IndexRange& it) { return it.extent == 0; });
        // Without "?" it is a branch that is not always taken, but always read.
        if (!is_empty) {
            std::vector<PlaceRange> ranges;
            bool outside = false;
            for (std::size_t i = 0; i < places.size(); ++i) {
                ranges.push_back(range_of(places[i]));
                outside =
                    outside || ranges.back().first < 0 || ranges.back().last >= array.view.shape[i];
            }
            if (outside) {
                array = it_.padded(array, ranges, number_);
                for (std::size_t i = 0; i < places.size(); ++i) {
                    places[i].constant -= ranges[i].first;
                }
            }
        }
        operands_.push_back(array.place);
        bound_.operands.push_back(operand_of(array, places));
        return {.kind = Expression::Kind::read,
                .number = static_cast<double>(operands_.size() - 1)};
    }

    CompiledDefinition& it_;
    int number_;
    const Statement& statement_;
    BoundStatement bound_;
    std::vector<Place> operands_;
    Place result_;
};

CompiledDefinition::CompiledDefinition(Definition definition, const Arrays& arrays)
    : definition_(std::move(definition)), symbols_(checked(definition_)) {
    const DType result_type = arrays.result_type;
    Shapes shapes;
    for (std::size_t i = 0; i < arrays.parameters.size(); ++i) {
        const TensorView& parameter = arrays.parameters[i];
        shapes[parameter.name] = parameter.shape;
        arrays_.push_back({parameter, {Place::Of::parameter, static_cast<std::int64_t>(i)}});
    }
    for (const auto& [name, shape] : arrays.results) {
        const auto tensor = symbols_.tensors.find(name);
        if (tensor != symbols_.tensors.end() && tensor->second.is_in_out) shapes[name] = shape;
    }
    ranges_ = ranges_of(definition_, symbols_, shapes, arrays.given);
    for (const std::string& name : definition_.returns) {
        const auto number = static_cast<std::int64_t>(results_.size());
        results_.push_back(dense_view(name, result_type, ranges_.shapes.at(name)));
        arrays_.push_back({results_.back(), {Place::Of::result, number}});
    }
    for (const auto& [name, shape] : ranges_.shapes) {
        const bool known = std::any_of(arrays_.begin(), arrays_.end(),
                                       [&](const Array& it) { return it.view.name == name; });
        if (known) continue;
        const TensorView view = dense_view(name, result_type, shape);
        std::int64_t elements = 1;
        for (const std::int64_t extent : shape) elements = checked_product(elements, extent);
        arrays_.push_back({view, scratch(checked_product(elements, size_of(result_type)))});
    }
    for (int i = 0; i < static_cast<int>(definition_.statements.size()); ++i) add_statement(i);
}

bool CompiledDefinition::is_in_out(std::size_t result) const {
    return symbols_.tensors.at(results_[result].name).is_in_out;
}

CompiledDefinition::Place CompiledDefinition::scratch(std::int64_t bytes) {
    const Place made{Place::Of::scratch, scratch_bytes_};
    scratch_bytes_ += aligned(bytes);
    return made;
}

const CompiledDefinition::Array& CompiledDefinition::array_of(const std::string& name) const {
    return *std::find_if(arrays_.begin(), arrays_.end(),
                         [&](const Array& it) { return it.view.name == name; });
}

CompiledDefinition::Array CompiledDefinition::padded(const Array& array,
                                                     const std::vector<PlaceRange>& places,
                                                     int number) {
    Shape shape;
    for (const PlaceRange& place : places) shape.push_back(place.last - place.first + 1);
    Array made{dense_view(array.view.name, array.view.dtype, shape), {}};
    BoundStatement copy{.value = {.kind = Expression::Kind::read}};
    BoundOperand from{.dtype = array.view.dtype};
    copy.result.dtype = array.view.dtype;
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < places.size(); ++i) {
        const std::int64_t first = std::max<std::int64_t>(places[i].first, 0);
        const std::int64_t last = std::min(places[i].last, array.view.shape[i] - 1);
        copy.indices.push_back(
            {.name = std::to_string(i), .extent = std::max<std::int64_t>(last - first + 1, 0)});
        from.offset += first * array.view.strides[i];
        from.strides.push_back(array.view.strides[i]);
        copy.result.offset += (first - places[i].first) * made.view.strides[i];
        copy.result.strides.push_back(made.view.strides[i]);
        elements = checked_product(elements, shape[i]);
    }
    if (elements > kMostPadded) {
        throw std::invalid_argument("a copy of " + array.view.name +
                                    " with zeros around it would have " + std::to_string(elements) +
                                    " elements, expected at most 2^31");
    }
    copy.operands = {from};
    made.place = scratch(elements * size_of(array.view.dtype));
    steps_.push_back(std::make_shared<const Step>(Step{RowStatement(copy),
                                                       {array.place},
                                                       made.place,
                                                       elements * size_of(array.view.dtype),
                                                       number}));
    return made;
}

void CompiledDefinition::add_statement(int number) {
    const Binding binding(*this, number);
    const std::vector<ChainStep> chain = chain_of(binding.statement());
    std::vector<Place> places = binding.operands();
    for (const ChainStep& link : chain) {
        std::vector<Place> operands;
        for (const int operand : link.operands) {
            operands.push_back(places.at(static_cast<std::size_t>(operand)));
        }
        const bool is_last = &link == &chain.back();
        const Place result = is_last
                                 ? binding.result()
                                 : scratch(link.elements * size_of(link.statement.result.dtype));
        add_step(link, operands, result, number);
        places.push_back(result);
    }
}

void CompiledDefinition::add_step(const ChainStep& link, const std::vector<Place>& operands,
                                  const Place& result, int number) {
    flops_ += operations(link.statement);
    if (auto product = product_of(link.statement)) {
        steps_.push_back(
            std::make_shared<const Step>(Step{std::move(product), operands, result, 0, number}));
    } else {
        steps_.push_back(std::make_shared<const Step>(
            Step{RowStatement(link.statement), operands, result, 0, number}));
    }
}

void CompiledDefinition::run(const std::vector<const void*>& parameters,
                             const std::vector<void*>& results) const {
    const WorkspacePool::Lease own(*workspaces_, scratch_bytes_);
    const auto at = [&](const Place& place) -> void* {
        const auto number = static_cast<std::size_t>(place.number);
        if (place.of == Place::Of::parameter) return const_cast<void*>(parameters[number]);
        return place.of == Place::Of::result ? results[number] : own.data() + place.number;
    };
    for (const auto& step : steps_) {
        void* const result = at(step->result);
        if (step->zeroed_bytes > 0) {
            std::memset(result, 0, static_cast<std::size_t>(step->zeroed_bytes));
        }
        if (const auto* product = std::get_if<std::shared_ptr<const ProductPass>>(&step->what)) {
            (*product)->run(at(step->operands[0]), at(step->operands[1]), result);
            continue;
        }
        std::vector<const void*> operands;
        for (const Place& operand : step->operands) operands.push_back(at(operand));
        std::get<RowStatement>(step->what).run(operands, result);
    }
}

std::string CompiledDefinition::described() const {
    std::string text;
    for (const auto& step : steps_) {
        const auto* product = std::get_if<std::shared_ptr<const ProductPass>>(&step->what);
        text += "statement " + std::to_string(step->statement + 1) + ": " +
                (product != nullptr ? (*product)->described()
                                    : std::get<RowStatement>(step->what).described());
        if (text.back() != '\n') text += '\n';
    }
    return text;
}

}  // namespace dlprim
