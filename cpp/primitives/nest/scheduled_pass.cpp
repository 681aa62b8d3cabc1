#include "primitives/nest/scheduled_pass.h"

#include "primitives/nest/schedule_cost.h"

namespace dlprim {
namespace {

Scheduled<ContractionPlan>::Rules plan_rules(const ContractionRules& it) {
    return {.plan =
                [it](std::int64_t variant, const Schedule& schedule) {
                    if (it.check) it.check(schedule);
                    return std::make_shared<const ContractionPlan>(
                        it.contraction(variant),
                        it.adapted ? it.adapted(variant, schedule) : schedule);
                },
            .candidates =
                [it](int count) {
                    const Contraction typical = it.contraction(it.typical);
                    return it.candidates ? it.candidates(typical, count)
                                         : ranked_schedules(typical, this_machine(), count);
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
