#include <stdexcept>

#include "primitives/conv/conv2d.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/nest/schedule_cost.h"

namespace dlprim {

Schedule Conv2d::schedule(PassKind pass) const {
    require_schedules();
    if (winograd_.runs(pass)) return winograd_.schedule(pass);
    const std::lock_guard lock(mutex_);
    return schedules_.at(pass);
}

void Conv2d::require_schedules() const {
    if (spec_.shape.is_depthwise()) {
        throw std::invalid_argument(
            "a depthwise convolution (groups equal to the channels) runs a fixed nest, expected "
            "no schedule for it");
    }
}

void Conv2d::set_schedule(PassKind pass, const Schedule& schedule) {
    require_schedules();
    if (winograd_.runs(pass)) {
        winograd_.set_schedule(pass, schedule);
        return;
    }
    const std::int64_t variant = typical_variant(pass);
    const auto made = std::make_shared<ContractionPlan>(contraction(pass, variant), schedule);
    const std::lock_guard lock(mutex_);
    std::erase_if(plans_, [&](const auto& entry) { return entry.first.first == pass; });
    schedules_[pass] = schedule;
    plans_[{pass, variant}] = made;
}

std::vector<Loop> Conv2d::loops(PassKind pass) const {
    require_schedules();
    if (winograd_.runs(pass)) return winograd_.loops(pass);
    std::vector<Loop> loops;
    for (const ContractionLoop& loop : contraction(pass, typical_variant(pass)).loops) {
        loops.push_back({loop.letter, loop.extent});
    }
    return loops;
}

std::vector<Schedule> Conv2d::candidates(PassKind pass, int count) const {
    require_schedules();
    if (winograd_.runs(pass)) return winograd_.candidates(pass, count);
    return ranked_schedules(contraction(pass, typical_variant(pass)), this_machine(), count);
}

std::string Conv2d::describe() const {
    const ConvShape& shape = spec_.shape;
    const ChannelBlocks in = src_blocks(shape);
    const ChannelBlocks out = dst_blocks(shape);
    std::string text = "blocks: C " + std::to_string(in.count()) + " x " +
                       std::to_string(in.block) + ", K " + std::to_string(out.count()) + " x " +
                       std::to_string(out.block) + "\n";
    if (shape.is_depthwise()) return text + "depthwise: vectors along the channels, no kernel\n";
    for (const PassKind pass :
         {PassKind::forward, PassKind::backward_data, PassKind::backward_weights}) {
        text += std::string(name_of(pass)) + ": schedule '" + to_string(schedule(pass)) + "'\n";
        text += "  " + winograd_.reason(pass) + "\n";
        const std::vector<std::string> names =
            winograd_.runs(pass) ? winograd_.kernel_names(pass)
                                 : plan(pass, typical_variant(pass))->kernel_names();
        for (const std::string& name : names) {
            text += "  " + name + "\n";
        }
    }
    return text;
}

}  // namespace dlprim
