#include "primitives/nest/scheduled_pass.h"

#include <memory>
#include <mutex>
#include <utility>

#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

// Of the contraction that the one call of a schedule has made and the next one, of its plan, takes.
class Handed {
public:
    void put(Contraction made) {
        auto kept = std::make_unique<Contraction>(std::move(made));
        const std::lock_guard lock(short_lock(this));
        std::swap(kept_, kept);
    }
    std::unique_ptr<Contraction> take() {
        const std::lock_guard lock(short_lock(this));
        return std::move(kept_);
    }

private:
    std::unique_ptr<Contraction> kept_;
};

Scheduled<ContractionPlan>::Rules plan_rules(const ContractionRules& it) {
    const auto typical = std::make_shared<Handed>();
    return {.plan =
                [it, typical](std::int64_t variant, const Schedule& schedule) {
                    if (it.check) it.check(schedule);
                    const auto made = variant == it.typical ? typical->take() : nullptr;
                    return std::make_shared<const ContractionPlan>(
                        made ? std::move(*made) : it.contraction(variant),
                        it.adapted ? it.adapted(variant, schedule) : schedule);
                },
            .candidates =
                [it, typical](int count) {
                    Contraction made = it.contraction(it.typical);
                    auto found = it.candidates ? it.candidates(made, count)
                                               : ranked_schedules(made, this_machine(), count);
                    typical->put(std::move(made));
                    return found;
                },
            .loops = [it] { return loops_of(it.contraction(it.typical)); },
            .typical = it.typical};
}

}  // namespace

ScheduledPass::ScheduledPass(const ContractionRules& rules) : Scheduled(plan_rules(rules)) {}

std::string described(const std::string& name, const ScheduledNest& nest,
                      const std::vector<std::string>& remarks) {
    std::string text = name + ": schedule '" + to_string(nest.schedule()) + "'\n";
    for (const std::string& line : remarks) text += "  " + line + "\n";
    for (const std::string& line : nest.kernel_names()) text += "  " + line + "\n";
    return text;
}

}  // namespace dlprim
