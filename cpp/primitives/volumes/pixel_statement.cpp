#include "primitives/volumes/pixel_statement.h"

#include <cmath>
#include <utility>

#include "jit/machine.h"
#include "primitives/products/product_run.h"

namespace dlprim {
namespace {

// Cycles of a row of a program beside its vectors.
constexpr double kRow = 4;

double cycles_of_rows(const BoundStatement& statement, std::int64_t along) {
    double rows = 1;
    for (const IndexRange& index : statement.indices) rows *= static_cast<double>(index.extent);
    const auto columns = static_cast<double>(along);
    const double lanes = this_machine().vector_lanes();
    return rows / columns * (std::ceil(columns / lanes) + kRow);
}

}  // namespace

PixelStatement::PixelStatement(DType dtype, DType result) {
    statement_.result.dtype = result;
    statement_.operands.resize(2);
    for (BoundOperand& it : statement_.operands) it.dtype = dtype;
    statement_.reduction = Reduction::sum;
    statement_.value = call_of("*", {read_of(0), read_of(1)});
}

void PixelStatement::add(const std::string& name, std::int64_t extent, const Steps& steps) {
    statement_.indices.push_back({name, extent, steps.result == 0});
    statement_.result.strides.push_back(steps.result);
    statement_.operands[0].strides.push_back(steps.a);
    statement_.operands[1].strides.push_back(steps.b);
    bias_.push_back(steps.bias);
}

void PixelStatement::begin(const Steps& at) {
    statement_.result.offset = at.result;
    statement_.operands[0].offset = at.a;
    statement_.operands[1].offset = at.b;
}

BoundProduct PixelStatement::product(bool bias) const {
    BoundProduct made{.statement = statement_};
    if (!bias) return made;
    NextStatement next{.is_result = {true, false}};
    BoundStatement& it = next.statement;
    BoundOperand added{.dtype = DType::f32};
    it.result = {statement_.result.dtype, statement_.result.offset, {}};
    for (std::size_t i = 0; i < statement_.indices.size(); ++i) {
        if (statement_.indices[i].reduced) continue;
        it.indices.push_back(statement_.indices[i]);
        it.result.strides.push_back(statement_.result.strides[i]);
        added.strides.push_back(bias_[i]);
    }
    it.operands = {it.result, added};
    it.value = call_of("+", {read_of(0), read_of(1)});
    made.next.push_back(std::move(next));
    return made;
}

ProductChoice::ProductChoice(const BoundProduct& product, std::int64_t along) {
    if (const auto strided = product.strided()) {
        option = std::make_shared<const ProductOption>(product_options(*strided).front());
    }
    const bool by_rows = !option || !(option->way || option->winograd || option->narrow);
    cycles = by_rows ? cycles_of_rows(product.statement, along) : option->cycles;
}

ProductRun ProductChoice::made(const BoundProduct& product) const {
    return option ? ProductRun(product, *option) : ProductRun(product);
}

}  // namespace dlprim
