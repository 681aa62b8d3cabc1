#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include "graph/branches.h"

using namespace dlprim;

namespace {

// `count` branches of `length` steps of 0.3 each, one step in front and one behind them all.
std::vector<StepCost> block(std::size_t count, std::size_t length) {
    std::vector<StepCost> steps{{.work = 0.3}};
    StepCost last{.work = 0.3};
    for (std::size_t branch = 0; branch < count; ++branch) {
        for (std::size_t i = 0; i < length; ++i) {
            steps.push_back({.work = 0.3, .after = {i == 0 ? 0 : steps.size() - 1}});
        }
        last.after.push_back(steps.size() - 1);
    }
    steps.push_back(last);
    return steps;
}

std::vector<std::size_t> in_order(std::size_t count) {
    std::vector<std::size_t> order(count);
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    return order;
}

}  // namespace

TEST_CASE("a chain has no branches, and nothing has none") {
    CHECK(plan_branches({}).order.empty());
    std::vector<StepCost> chain(9, {.work = 0.5});
    for (std::size_t i = 1; i < chain.size(); ++i) chain[i].after = {i - 1};
    const BranchPlan plan = plan_branches(chain);
    CHECK(plan.stretches.empty());
    CHECK(plan.order == in_order(9));
}

TEST_CASE("the branches of a block are found between what is common to them") {
    const BranchPlan plan = plan_branches(block(3, 2));
    CHECK(plan.order == in_order(8));
    REQUIRE(plan.stretches.size() == 1);
    CHECK(plan.stretches[0].branches == std::vector<Range>{{1, 3}, {3, 5}, {5, 7}});
    CHECK(plan.stretches[0].work == doctest::Approx(1.8));
    CHECK(plan.stretches[0].longest == doctest::Approx(0.6));
}

TEST_CASE("blocks in a row are a stretch each") {
    std::vector<StepCost> steps = block(4, 3);
    const std::size_t before = steps.size();
    for (StepCost it : block(4, 3)) {
        for (std::size_t& after : it.after) after += before;
        if (it.after.empty()) it.after = {before - 1};
        steps.push_back(it);
    }
    CHECK(plan_branches(steps).stretches.size() == 2);
}

TEST_CASE("steps of branches that take turns come to lie together, the longest branch first") {
    std::vector<StepCost> steps;
    for (std::size_t i = 0; i < 6; ++i) {
        StepCost step{.work = i % 2 == 0 ? 0.4 : 0.5};
        if (i >= 2) step.after = {i - 2};
        steps.push_back(step);
    }
    const BranchPlan plan = plan_branches(steps);
    CHECK(plan.order == std::vector<std::size_t>{1, 3, 5, 0, 2, 4});
    REQUIRE(plan.stretches.size() == 1);
    CHECK(plan.stretches[0].branches == std::vector<Range>{{0, 3}, {3, 6}});
}

TEST_CASE("large steps and lonely ones are in no branch, nor is what saves little") {
    std::vector<StepCost> steps = block(2, 2);
    CHECK(plan_branches(steps).stretches.size() == 1);
    steps[1].work = 1.1;
    CHECK(plan_branches(steps).stretches.empty());
    steps = block(2, 2);
    steps[3].alone = true;
    CHECK(plan_branches(steps).stretches.empty());
    steps = block(2, 1);
    CHECK(plan_branches(steps).stretches.empty());
}

TEST_CASE("many threads take the steps of two branches one after the other") {
    const BranchPlan plan = plan_branches(block(2, 3));
    REQUIRE(plan.stretches.size() == 1);
    CHECK_FALSE(plan.stretches[0].pays(1));
    CHECK(plan.stretches[0].pays(2));
    const Stretch large{.branches = {{0, 2}, {2, 4}}, .longest = 1.9, .work = 3.8};
    CHECK(large.pays(2));
    CHECK_FALSE(large.pays(16));
}

TEST_CASE("drawn plans keep the order of what depends on each other") {
    std::mt19937 random(3);
    const auto draw = [&](std::size_t most) {
        return std::uniform_int_distribution<std::size_t>(0, most)(random);
    };
    std::size_t stretches = 0;
    for (int trial = 0; trial < 200; ++trial) {
        std::vector<StepCost> steps(draw(300));
        for (std::size_t i = 0; i < steps.size(); ++i) {
            steps[i].work = static_cast<double>(draw(100)) / 95;
            steps[i].alone = draw(30) == 0;
            for (std::size_t n = draw(2); n > 0 && i > 0; --n) {
                steps[i].after.push_back(i - 1 - draw(std::min<std::size_t>(i - 1, 8)));
            }
        }
        const BranchPlan plan = plan_branches(steps);
        std::vector<std::size_t> place(steps.size(), steps.size());
        REQUIRE(plan.order.size() == steps.size());
        for (std::size_t i = 0; i < steps.size(); ++i) place[plan.order[i]] = i;
        std::vector<std::int64_t> branch(steps.size(), -1), stretch(steps.size(), -1);
        for (const Stretch& it : plan.stretches) {
            CHECK(it.branches.size() > 1);
            for (const Range& range : it.branches) {
                for (std::int64_t i = range.begin; i < range.end; ++i) {
                    branch[static_cast<std::size_t>(i)] = range.begin;
                    stretch[static_cast<std::size_t>(i)] = it.steps().begin;
                    const StepCost& step = steps[plan.order[static_cast<std::size_t>(i)]];
                    CHECK((step.work < 1 && !step.alone));
                }
            }
        }
        for (std::size_t i = 0; i < steps.size(); ++i) {
            for (const std::size_t before : steps[i].after) {
                const std::size_t here = place[i], there = place[before];
                CHECK(there < here);
                CHECK((stretch[here] < 0 || stretch[here] != stretch[there] ||
                       branch[here] == branch[there]));
            }
        }
        stretches += plan.stretches.size();
    }
    CHECK(stretches > 200);
}

TEST_CASE("no stretch goes over to the step that begins") {
    std::vector<StepCost> steps = block(4, 2);
    REQUIRE(plan_branches(steps).stretches.size() == 1);
    steps[5].begins = true;  // amid the branches, 1 to 8
    const BranchPlan plan = plan_branches(steps);
    REQUIRE(!plan.stretches.empty());
    for (const Stretch& it : plan.stretches) {
        CHECK((it.steps().end <= 5 || it.steps().begin >= 5));
    }
    const auto place = [&](std::size_t step) {
        return std::find(plan.order.begin(), plan.order.end(), step) - plan.order.begin();
    };
    for (std::size_t before = 0; before < 5; ++before) CHECK(place(before) < place(5));
}
