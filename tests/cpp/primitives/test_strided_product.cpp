#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cases.h"
#include "draw.h"
#include "guarded_elements.h"
#include "primitives/mapping/product_ways.h"
#include "primitives/products/narrow_pass.h"
#include "primitives/products/product_pass.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::differences;
using testing::Draw;
using testing::Elements;
using testing::Fence;

constexpr float kGap = 1e30F;

float value_of(std::uint32_t bits, DType dtype) {
    return std::bit_cast<float>(dtype == DType::f32 ? bits : bits << 16);
}

// A multiple of a power of two that both types hold, so that no sum of few is rounded.
std::uint32_t bits_of(float value, DType dtype) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return dtype == DType::f32 ? bits : (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
}

Expression product_of_two() {
    Expression product{.kind = Expression::Kind::call, .name = "*"};
    for (const int operand : {0, 1}) {
        product.operands.push_back({.kind = Expression::Kind::read, .number = double(operand)});
    }
    return product;
}

// Strides of the indices that are there, in a random order, some with gaps, some backwards. What
// the last element is behind.
std::int64_t lay_out(Draw& draw, const BoundStatement& statement, const std::vector<bool>& has,
                     BoundOperand& operand) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < has.size(); ++i) {
        if (has[i]) order.insert(order.begin() + draw.from(0, std::int64_t(order.size())), i);
    }
    operand.strides.assign(has.size(), 0);
    std::int64_t stride = draw.once_in(6) ? 2 : 1, last = 0;
    for (const std::size_t i : order) {
        operand.strides[i] = stride;
        last += (statement.indices[i].extent - 1) * stride;
        stride = stride * statement.indices[i].extent + (draw.once_in(4) ? draw.from(1, 5) : 0);
    }
    operand.offset = draw.once_in(4) ? draw.from(0, 7) : 0;
    const std::int64_t elements = operand.offset + last + 1;
    for (const std::size_t i : order) {
        if (!draw.once_in(12)) continue;
        operand.offset += (statement.indices[i].extent - 1) * operand.strides[i];
        operand.strides[i] = -operand.strides[i];
    }
    return elements;
}

struct Problem {
    BoundStatement statement;
    std::int64_t elements[3];  // of a, b, c
};

Problem drawn(Draw& draw) {
    Problem made;
    BoundStatement& it = made.statement;
    it.value = product_of_two();
    it.reduction = Reduction::sum;
    it.initializes = !draw.once_in(4);
    std::vector<bool> in[3];
    const bool is_network = draw.once_in(4);
    const bool is_narrow = !is_network && draw.once_in(3);
    const std::int64_t count = is_network  ? draw.from(6, 9)
                               : is_narrow ? draw.from(3, 4)
                                           : draw.from(1, 5);
    for (std::int64_t i = 0; i < count; ++i) {
        constexpr std::array<int, 6> kinds = {3, 5, 5, 6, 6, 7};  // bits: a, b, c
        constexpr std::array<int, 4> narrow_kinds = {5, 3, 6, 7};
        const int kind = is_narrow ? narrow_kinds.at(std::size_t(i)) : draw.one_of(kinds);
        const std::int64_t extent = is_network        ? draw.from(1, 3)
                                    : draw.once_in(4) ? draw.from(1, 70)
                                                      : draw.from(1, 9);
        it.indices.push_back({std::string(1, char('i' + i)), extent, (kind & 4) == 0});
        for (int operand = 0; operand < 3; ++operand) {
            in[operand].push_back((kind >> operand & 1) != 0);
        }
    }
    const bool halves = !is_narrow && draw.once_in(3);
    it.operands.resize(2);
    for (int i = 0; i < 2; ++i) {
        BoundOperand& operand = it.operands[std::size_t(i)];
        made.elements[i] = lay_out(draw, it, in[i], operand);
        operand.dtype = halves ? DType::bf16 : DType::f32;
    }
    made.elements[2] = lay_out(draw, it, in[2], it.result);
    it.result.dtype = halves && draw.once_in(2) ? DType::bf16 : DType::f32;
    return made;
}

// Calls body(offsets of a, b, c) for all values of all indices.
template <class Body>
void for_all(const BoundStatement& it, const Body& body, std::size_t index = 0,
             std::array<std::int64_t, 3> at = {}) {
    if (index == 0) at = {it.operands[0].offset, it.operands[1].offset, it.result.offset};
    if (index == it.indices.size()) return body(at);
    for (std::int64_t i = 0; i < it.indices[index].extent; ++i) {
        for_all(it, body, index + 1, at);
        at[0] += it.operands[0].strides[index];
        at[1] += it.operands[1].strides[index];
        at[2] += it.result.strides[index];
    }
}

void fill(Draw& draw, Elements& elements, DType dtype) {
    for (std::int64_t i = 0; i < elements.count(); ++i) {
        elements.set(i, bits_of(float(draw.from(-2, 2)), dtype));
    }
}

TEST_CASE("every way to compute a product of matrices gives its sums and touches nothing else") {
    Draw draw(20261123);
    unsigned ways_run = 0, narrow_run = 0;
    for (unsigned round = 0; round < testing::cases(1500); ++round) {
        const Problem problem = drawn(draw);
        const BoundStatement& it = problem.statement;
        const auto product = product_in(it);
        if (!product || !product->is_of_matrices()) continue;
        Elements a(problem.elements[0], it.operands[0].dtype, Fence::after);
        Elements b(problem.elements[1], it.operands[1].dtype, Fence::after);
        fill(draw, a, it.operands[0].dtype);
        fill(draw, b, it.operands[1].dtype);
        const DType type = it.result.dtype;
        std::vector<double> sums(std::size_t(problem.elements[2]), kGap);
        Elements before(problem.elements[2], type, Fence::after);
        for (std::int64_t i = 0; i < before.count(); ++i) before.set(i, bits_of(kGap, type));
        for_all(it, [&](const auto& at) {
            sums[std::size_t(at[2])] = it.initializes ? 0 : 3;
            if (!it.initializes) before.set(at[2], bits_of(3, type));
        });
        for_all(it, [&](const auto& at) {
            sums[std::size_t(at[2])] += value_of(a.at(at[0]), it.operands[0].dtype) *
                                        value_of(b.at(at[1]), it.operands[1].dtype);
        });
        const auto check = [&](const std::string& described, const auto& run) {
            ++ways_run;
            CAPTURE(round);
            CAPTURE(described);
            Elements c(problem.elements[2], type, Fence::after);
            for (std::int64_t i = 0; i < c.count(); ++i) c.set(i, before.at(i));
            run(c.data());
            int wrong = 0;
            for (std::int64_t i = 0; i < c.count(); ++i) {
                wrong += c.at(i) != bits_of(float(sums[std::size_t(i)]), type);
            }
            REQUIRE(wrong == 0);
        };
        for (const ProductWay& way : product_ways(*product, this_machine())) {
            const ProductPass pass(*product, way);
            check(to_string(way, *product), [&](void* c) { pass.run({{a.data(), b.data()}}, c); });
        }
        if (const auto narrow = NarrowPass::of(*product)) {
            ++narrow_run;
            check(narrow->described(),
                  [&](void* c) { narrow->run(a.data(), b.data(), nullptr, c); });
        }
    }
    CHECK(narrow_run > testing::cases(20));
    MESSAGE(ways_run, " ways run");
}

}  // namespace
}  // namespace dlprim
