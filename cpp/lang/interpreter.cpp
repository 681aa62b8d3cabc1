#include "lang/interpreter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>

#include "lang/lexer.h"

namespace dlprim {
namespace {

using Kind = Expression::Kind;

// An expression with its names looked up.
struct Node {
    enum class Step : std::uint8_t { number, index, read, call, choose, both, either };

    Step step = Step::number;
    double number = 0;
    std::size_t index = 0;
    const Array* array = nullptr;
    double (*function)(std::span<const double>) = nullptr;
    bool rounds_down = false;  // of "/" between integers
    const Expression* expression = nullptr;
    std::vector<Node> operands = {};
};

class StatementRun {
public:
    StatementRun(const Definition& definition, const Statement& statement, const Symbols& symbols,
                 const Constants& sizes, const std::vector<IndexRange>& indices, Arrays& arrays)
        : text_(definition.text),
          statement_(statement),
          symbols_(symbols),
          sizes_(sizes),
          indices_(indices),
          arrays_(arrays),
          at_(indices.size(), 0),
          strides_(strides_of(arrays.at(statement.result))),
          value_(compiled(statement.value)) {}

    void run() {
        Array& result = arrays_.at(statement_.result);
        const std::size_t rank = statement_.indices.size();
        if (is_empty(0, rank)) return;
        const bool reduces = !is_empty(rank, at_.size());
        do {
            double& element = result.values[offset()];
            double sum = statement_.initializes ? start() : element;
            if (reduces) {
                do {
                    sum = joined(sum, evaluate(value_));
                } while (advances(rank, at_.size()));
            }
            element = sum;
        } while (advances(0, rank));
    }

private:
    bool is_empty(std::size_t begin, std::size_t end) const {
        return std::any_of(indices_.begin() + static_cast<std::ptrdiff_t>(begin),
                           indices_.begin() + static_cast<std::ptrdiff_t>(end),
                           [](const IndexRange& it) { return it.extent == 0; });
    }

    // To the next values of some indices, the last one fastest; false behind the last ones.
    bool advances(std::size_t begin, std::size_t end) {
        for (std::size_t i = end; i-- > begin;) {
            if (++at_[i] < indices_[i].extent) return true;
            at_[i] = 0;
        }
        return false;
    }

    std::size_t offset() const {
        std::int64_t offset = 0;
        for (std::size_t i = 0; i < strides_.size(); ++i) offset += strides_[i] * at_[i];
        return static_cast<std::size_t>(offset);
    }

    // From one value of an index of the result to the next.
    std::vector<std::int64_t> strides_of(const Array& result) const {
        std::vector<std::int64_t> made(statement_.indices.size());
        std::int64_t stride = 1;
        for (std::size_t i = result.shape.size(); i-- > 0;) {
            const AffineSum place = *affine_of(statement_.target.operands[i], {});
            for (const AffineTerm& term : place.terms) {
                const auto index = std::ranges::find(statement_.indices, term.index);
                made[static_cast<std::size_t>(index - statement_.indices.begin())] =
                    stride * term.factor;
            }
            stride *= result.shape[i];
        }
        return made;
    }

    double start() const {
        constexpr double kInfinity = std::numeric_limits<double>::infinity();
        switch (statement_.reduction) {
            case Reduction::none:
            case Reduction::sum: return 0;
            case Reduction::product: return 1;
            case Reduction::largest: return -kInfinity;
            case Reduction::smallest: return kInfinity;
        }
        return 0;
    }

    double joined(double sum, double value) const {
        switch (statement_.reduction) {
            case Reduction::none: return value;
            case Reduction::sum: return sum + value;
            case Reduction::product: return sum * value;
            case Reduction::largest: return value > sum || std::isnan(value) ? value : sum;
            case Reduction::smallest: return value < sum || std::isnan(value) ? value : sum;
        }
        return sum;
    }

    Node compiled(const Expression& it) const {
        Node made{.number = it.number, .expression = &it};
        for (const Expression& operand : it.operands) made.operands.push_back(compiled(operand));
        if (it.kind == Kind::call) {
            made.step = it.name == "?:"   ? Node::Step::choose
                        : it.name == "&&" ? Node::Step::both
                        : it.name == "||" ? Node::Step::either
                                          : Node::Step::call;
            made.function = find_function(it.name)->value;
            made.rounds_down = it.name == "/" && type_of(it, symbols_, text_) == ValueType::integer;
        } else if (symbols_.tensors.contains(it.name)) {
            made.step = Node::Step::read;
            made.array = &arrays_.at(it.name);
        } else if (symbols_.sizes.contains(it.name)) {
            made.number = static_cast<double>(sizes_.at(it.name));
        } else if (it.kind == Kind::name) {
            made.step = Node::Step::index;
            while (indices_[made.index].name != it.name) ++made.index;
        }
        return made;
    }

    double evaluate(const Node& node) const {
        switch (node.step) {
            case Node::Step::number: return node.number;
            case Node::Step::index: return static_cast<double>(at_[node.index]);
            case Node::Step::read: return element(node);
            case Node::Step::call: return call(node);
            case Node::Step::choose:
                return evaluate(node.operands[evaluate(node.operands[0]) != 0 ? 1 : 2]);
            case Node::Step::both:
                return evaluate(node.operands[0]) != 0 && evaluate(node.operands[1]) != 0 ? 1 : 0;
            case Node::Step::either:
                return evaluate(node.operands[0]) != 0 || evaluate(node.operands[1]) != 0 ? 1 : 0;
        }
        return 0;
    }

    double call(const Node& node) const {
        std::array<double, 3> values = {};
        for (std::size_t i = 0; i < node.operands.size(); ++i) {
            values[i] = evaluate(node.operands[i]);
        }
        const double value = node.function({values.data(), node.operands.size()});
        return node.rounds_down ? std::floor(value) : value;
    }

    double element(const Node& node) const {
        const Array& array = *node.array;
        std::int64_t offset = 0;
        for (std::size_t i = 0; i < node.operands.size(); ++i) {
            const double place = evaluate(node.operands[i]);
            if (!(place >= 0 && place < static_cast<double>(array.shape[i]))) {
                if (node.expression->may_lie_outside) return 0;
                refuse_at(text_, node.operands[i].expression->position, "The place ", place, " of ",
                          node.expression->name, " is not in its dimension of ", array.shape[i],
                          ", expected one that is, or '?' for zeros outside");
            }
            offset = offset * array.shape[i] + static_cast<std::int64_t>(place);
        }
        return array.values[static_cast<std::size_t>(offset)];
    }

    const std::string& text_;
    const Statement& statement_;
    const Symbols& symbols_;
    const Constants& sizes_;
    const std::vector<IndexRange>& indices_;
    Arrays& arrays_;
    std::vector<std::int64_t> at_;  // values of the indices
    std::vector<std::int64_t> strides_;
    Node value_;
};

std::size_t elements_of(const Shape& shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count = checked_product(count, extent);
    return static_cast<std::size_t>(count);
}

}  // namespace

void interpret(const Definition& definition, Arrays& arrays, const Constants& given) {
    const Symbols symbols = checked(definition);
    Shapes shapes;
    for (const auto& [name, array] : arrays) {
        const auto tensor = symbols.tensors.find(name);
        if (tensor == symbols.tensors.end()) continue;
        if (tensor->second.is_parameter || tensor->second.is_in_out) shapes[name] = array.shape;
    }
    const Ranges ranges = ranges_of(definition, symbols, shapes, given);
    for (const auto& [name, tensor] : symbols.tensors) {
        if (tensor.is_parameter) continue;
        if (tensor.is_in_out && !arrays.contains(name)) {
            throw std::invalid_argument(
                "The result " + name +
                " is read or added to before it is written, expected an array for it.");
        }
        const Shape& shape = ranges.shapes.at(name);
        if (!tensor.is_in_out) arrays[name] = {shape, std::vector<double>(elements_of(shape))};
    }
    for (std::size_t i = 0; i < definition.statements.size(); ++i) {
        StatementRun(definition, definition.statements[i], symbols, ranges.sizes,
                     ranges.statements[i], arrays)
            .run();
    }
}

}  // namespace dlprim
