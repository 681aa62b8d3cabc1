// What every pass of a primitive has that runs as a nest of loops: plans, made when they are first
// needed, and the schedule that all of them follow. A pass needs several plans where calls differ
// in what is fused or in how much of the problem they take; a number, the variant, tells them
// apart, and what it means only the pass knows. One variant is typical: schedules are ranked for it
// and are refused when it cannot follow them. May be used by several threads at once: what two of
// them make at a time stays of the first, so that no lock is held while anything is made, which a
// fork would leave locked in the child.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jit/cache.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/loop_nest.h"

namespace dlprim {

// The three passes that a layer with weights has, under the names that schedules are stored by.
enum class PassKind : std::uint8_t { forward, backward_data, backward_weights };

inline constexpr std::array<PassKind, 3> kPassKinds = {PassKind::forward, PassKind::backward_data,
                                                       PassKind::backward_weights};

constexpr std::string_view name_of(PassKind pass) {
    constexpr std::array<std::string_view, 3> names = {"forward", "backward_data",
                                                       "backward_weights"};
    return names.at(static_cast<std::size_t>(pass));
}

class ScheduledNest {
public:
    virtual ~ScheduledNest() = default;

    virtual Schedule schedule() const = 0;
    // Throws std::invalid_argument, and leaves all as it was, when the pass cannot follow it.
    virtual void set_schedule(const Schedule& schedule) = 0;
    virtual std::vector<Loop> loops() const = 0;
    // From the best on, at most `count` and at least one.
    virtual std::vector<Schedule> candidates(int count) const = 0;
    virtual std::vector<std::string> kernel_names() const = 0;  // each once, sorted
};

// `Plan` has kernel_names().
template <class Plan>
class Scheduled : public ScheduledNest {
public:
    using PlanPointer = std::shared_ptr<const Plan>;

    struct Rules {
        // Throws std::invalid_argument when the plan cannot follow the schedule.
        std::function<PlanPointer(std::int64_t variant, const Schedule&)> plan;
        std::function<std::vector<Schedule>(int count)> candidates;
        std::function<std::vector<Loop>()> loops;
        std::int64_t typical = 0;
    };

    explicit Scheduled(Rules rules) : rules_(std::move(rules)) {}
    Scheduled(const Scheduled&) = delete;
    Scheduled& operator=(const Scheduled&) = delete;

    // A caller keeps what it runs: set_schedule() of another thread ends only what nobody has.
    PlanPointer plan(std::int64_t variant) const {
        {
            const std::lock_guard lock(short_lock(this));
            const auto known = plans_.find(variant);
            if (known != plans_.end()) return known->second;
        }
        const Schedule followed = schedule();
        const PlanPointer made = rules_.plan(variant, followed);
        const std::lock_guard lock(short_lock(this));
        if (schedule_ != followed) return made;  // another one was prescribed meanwhile
        return plans_.try_emplace(variant, made).first->second;
    }
    PlanPointer typical_plan() const { return plan(rules_.typical); }

    // What ranks highest unless it is prescribed; ranked when it is first asked for, because many
    // a primitive runs one of its passes alone.
    Schedule schedule() const override {
        {
            const std::lock_guard lock(short_lock(this));
            if (schedule_) return *schedule_;
        }
        const Schedule best = rules_.candidates(1).front();
        const std::lock_guard lock(short_lock(this));
        if (!schedule_) schedule_ = best;
        return *schedule_;
    }
    void set_schedule(const Schedule& schedule) override {
        std::map<std::int64_t, PlanPointer> plans;  // at last those from before, which end here
        plans[rules_.typical] = rules_.plan(rules_.typical, schedule);
        const std::lock_guard lock(short_lock(this));
        std::swap(plans_, plans);
        schedule_ = schedule;
    }
    std::vector<Loop> loops() const override { return rules_.loops(); }
    std::vector<Schedule> candidates(int count) const override { return rules_.candidates(count); }
    std::vector<std::string> kernel_names() const override {
        return typical_plan()->kernel_names();
    }

private:
    Rules rules_;
    mutable std::optional<Schedule> schedule_;
    mutable std::map<std::int64_t, PlanPointer> plans_;
};

// A pass around the kernel, run by the one driver.
struct ContractionRules {
    std::function<Contraction(std::int64_t variant)> contraction;
    std::int64_t typical = 0;
    // Schedules of the typical contraction, as Scheduled::Rules has them; without it, what the cost
    // model ranks highest.
    std::function<std::vector<Schedule>(const Contraction&, int count)> candidates = {};
    // What a variant follows that cannot follow the common schedule as it is.
    std::function<Schedule(std::int64_t variant, const Schedule&)> adapted = {};
    // Throws std::invalid_argument for what the driver could run and the pass cannot.
    std::function<void(const Schedule&)> check = {};
};

class ScheduledPass : public Scheduled<ContractionPlan> {
public:
    explicit ScheduledPass(const ContractionRules& rules);
};

// "name: schedule '...'", then `remarks` and the names of the kernels, a line each.
std::string described(const std::string& name, const ScheduledNest& nest,
                      const std::vector<std::string>& remarks = {});

}  // namespace dlprim
