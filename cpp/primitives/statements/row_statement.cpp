#include "primitives/statements/row_statement.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "primitives/statements/row_planner.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

// Above it not every integer is a float.
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 24;

void require_known(const BoundStatement& statement) {
    require_numbers(statement.result, "the result");
    for (std::size_t i = 0; i < statement.operands.size(); ++i) {
        require_numbers(statement.operands[i], "operand " + std::to_string(i));
    }
    for (std::size_t i = 0; i < statement.indices.size(); ++i) {
        const IndexRange& it = statement.indices[i];
        if (!it.reduced && it.extent > 1 && statement.result.strides[i] == 0) {
            throw std::invalid_argument("the result has no distance along index " + it.name +
                                        ", expected a place for each of its elements");
        }
        if (it.reduced && statement.reduction == Reduction::none) {
            throw std::invalid_argument("index " + it.name +
                                        " is reduced, expected a reduction, such as +=!");
        }
    }
}

// Indices that are values become reads of the numbers 0, 1, 2, ..
class NamedIndices {
public:
    explicit NamedIndices(PlacedStatement& statement) : statement_(statement) {}

    void replace(Expression& value) {
        for (Expression& it : value.operands) replace(it);
        if (value.kind != Expression::Kind::name) return;
        BoundStatement& it = statement_.it;
        const auto found = std::find_if(it.indices.begin(), it.indices.end(),
                                        [&](const IndexRange& i) { return i.name == value.name; });
        if (found == it.indices.end()) {
            throw std::invalid_argument("a statement names \"" + value.name +
                                        "\", expected one of its indices");
        }
        if (found->extent > kMostNumbers) {
            throw std::invalid_argument("index " + value.name + " goes to " +
                                        std::to_string(found->extent) +
                                        ", expected at most 2^24 where it is a value");
        }
        value.kind = Expression::Kind::read;
        value.is_integer = true;
        value.number = static_cast<double>(it.operands.size());
        BoundOperand numbers{.strides = std::vector<std::int64_t>(it.indices.size())};
        numbers.strides[static_cast<std::size_t>(found - it.indices.begin())] = 1;
        it.operands.push_back(std::move(numbers));
        statement_.operands.push_back({RowStatement::Memory::Of::numbers});
        most_ = std::max(most_, found->extent);
    }

    std::int64_t most() const { return most_; }

private:
    PlacedStatement& statement_;
    std::int64_t most_ = 0;
};

}  // namespace

void require_numbers(const BoundOperand& it, const std::string& name) {
    if (it.dtype != DType::s32) return;
    throw std::invalid_argument(name + " is int32, expected float32, bfloat16, int8 or uint8 " +
                                "where nothing is a product");
}

RowStatement::RowStatement(const BoundStatement& statement) {
    require_known(statement);
    PlacedStatement placed{.it = statement};
    for (std::size_t i = 0; i < statement.operands.size(); ++i) {
        placed.operands.push_back({Memory::Of::operand, static_cast<std::int64_t>(i)});
    }
    NamedIndices named(placed);
    Expression value = statement.value;
    named.replace(value);
    placed.it.value = std::move(value);
    numbers_.resize(static_cast<std::size_t>(named.most()));
    std::iota(numbers_.begin(), numbers_.end(), 0.0F);
    RowPlanner planner;
    planner.plan(std::move(placed));
    steps_ = std::move(planner.steps);
    scratch_bytes_ = planner.scratch_bytes;
}

void RowStatement::run(std::span<const void* const> operands, void* result) const {
    const WorkspacePool::Lease scratch(WorkspacePool::lasting(), scratch_bytes_);
    const auto address = [&](const Memory& it) -> char* {
        switch (it.of) {
            case Memory::Of::result: return static_cast<char*>(result);
            case Memory::Of::operand:
                return static_cast<char*>(
                    const_cast<void*>(operands[static_cast<std::size_t>(it.place)]));
            case Memory::Of::numbers:
                return reinterpret_cast<char*>(const_cast<float*>(numbers_.data()));
            case Memory::Of::scratch: return scratch.data() + it.place;
        }
        return nullptr;
    };
    std::vector<char*> addresses;
    for (const Step& step : steps_) {
        addresses.clear();
        for (const Memory& it : step.operands) addresses.push_back(address(it));
        if (const auto* const pass = std::get_if<StatementPass>(&step.what)) {
            pass->run(addresses, address(step.result));
        } else {
            const Copy& copy = std::get<Copy>(step.what);
            copy.reorder.run(addresses[0] + copy.from, address(step.result) + copy.to);
        }
    }
}

std::string RowStatement::described() const {
    std::string all;
    for (const Step& step : steps_) all += step.described + "\n";
    return all;
}

}  // namespace dlprim
