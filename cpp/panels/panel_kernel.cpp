#include "panels/panel_kernel.h"

#include <algorithm>

#include "jit/pricing.h"
#include "jit/profile.h"
#include "panels/emit_panels.h"
#include "panels/panel_reference.h"

namespace dlprim {
namespace {

constexpr double kCyclesPerCall = 40;
constexpr double kBytesPerCycle = 8;  // of what comes from memory, with one row
constexpr CacheBounds kBounds{.entries = 1024, .bytes = std::int64_t{32} << 20};

template <class Spec>
struct KeyOf {
    Spec spec = {};
    Isa isa = Isa::scalar;

    friend bool operator==(const KeyOf&, const KeyOf&) = default;
};

std::uint64_t packed(const PanelSpec& spec) {
    const PanelFormat& format = spec.format;
    std::uint64_t made = format.bits;
    for (const unsigned field :
         {unsigned{format.group}, unsigned{format.zero_points},
          static_cast<unsigned>(format.scales), unsigned{spec.x_bits}, unsigned{spec.rows},
          unsigned{spec.columns}, unsigned{spec.bias}, static_cast<unsigned>(spec.activation),
          static_cast<unsigned>(spec.src)}) {
        made = made * 131 + field;
    }
    return made;
}

std::uint64_t packed(const RecordSpec& spec) {
    const RowRecord& record = spec.record;
    return (((static_cast<std::uint64_t>(record.method) * 256 + record.group) * 256 +
             record.x_bits) *
                256 +
            static_cast<unsigned>(spec.src)) *
               256 +
           spec.zero;
}

struct KeyHash {
    template <class Spec>
    std::size_t operator()(const KeyOf<Spec>& key) const noexcept {
        return (packed(key.spec) * 8 + static_cast<unsigned>(key.isa)) * 0x9e3779b97f4a7c15;
    }
};

using PanelCache = Cache<KeyOf<PanelSpec>, PanelKernel, KeyHash>;
using RecordCache = Cache<KeyOf<RecordSpec>, RecordKernel, KeyHash>;

PanelCache& panels() { return process_cache<PanelCache, kBounds>(); }
RecordCache& records() { return process_cache<RecordCache, kBounds>(); }

std::string name_of(const RowRecord& record) {
    constexpr std::array kMethods = {"_dots", "_pairs", "_words", "_floats", "_halves"};
    return kMethods.at(static_cast<std::size_t>(record.method)) + std::to_string(record.x_bits) +
           "_group" + std::to_string(record.group);
}

}  // namespace

PanelKernel::PanelKernel(const PanelSpec& spec, Isa isa) : plan_(panel_plan(spec, isa)) {
    if (isa == Isa::scalar) return;
    code_ = Code(emit_panel(plan_), pages_for_profile());
    entry_ = code_.entry<Function>();
}

void PanelKernel::operator()(const PanelArgs& args) const {
    if (Pricing* const pricing = Pricing::current()) {
        const auto bytes = static_cast<double>(args.groups * plan_.spec.format.group_bytes());
        const double rows = std::max(1.0, plan_.spec.rows / 2.0);
        return pricing->add(kCyclesPerCall + bytes / kBytesPerCycle * rows);
    }
    if (entry_ != nullptr) {
        entry_(&args);
    } else {
        reference_panel(plan_.spec, plan_.record, args);
    }
}

std::string PanelKernel::name() const {
    const PanelSpec& spec = plan_.spec;
    const PanelFormat& format = spec.format;
    return "panel_" + std::string(dlprim::name_of(plan_.isa)) + "_" + std::to_string(format.bits) +
           "bit_" + std::string(dlprim::name_of(format.scales)) + name_of(plan_.record) +
           (format.zero_points ? "_zeros" : "") + "_" + std::to_string(spec.rows) + "x" +
           std::to_string(spec.columns) + (spec.bias ? "_bias_" : "_") +
           std::string(dlprim::name_of(spec.activation)) + "_" +
           std::string(dlprim::name_of(spec.src));
}

std::shared_ptr<const PanelKernel> panel_kernel(const PanelSpec& spec, Isa isa) {
    return panels().get_or_create({spec, isa}, [&] {
        return generated_kernel([&] { return std::make_shared<const PanelKernel>(spec, isa); });
    });
}

RecordSpec record_spec(const PanelFormat& format, int x_bits, DType src, Isa isa) {
    const RecordSpec made{.record = {.method = panel_method(format, src, isa),
                                     .group = format.group,
                                     .x_bits = static_cast<std::uint8_t>(x_bits)},
                          .src = src,
                          .zero = static_cast<std::uint8_t>(
                              format.zero_points || !format.has_scales() ? 1 : format.zero())};
    return made;
}

RecordKernel::RecordKernel(const RecordSpec& spec, Isa isa) : spec_(spec), isa_(isa) {
    if (isa == Isa::scalar) return;
    code_ = Code(emit_records(spec, isa), pages_for_profile());
    entry_ = code_.entry<Function>();
}

void RecordKernel::operator()(const RecordArgs& args) const {
    if (Pricing* const pricing = Pricing::current()) {
        return pricing->add(kCyclesPerCall + static_cast<double>(args.groups * spec_.record.group));
    }
    if (entry_ != nullptr) {
        entry_(&args);
    } else {
        reference_records(spec_, args);
    }
}

std::string RecordKernel::name() const {
    return "records_" + std::string(dlprim::name_of(isa_)) + name_of(spec_.record) + "_zero" +
           std::to_string(spec_.zero) + "_" + std::string(dlprim::name_of(spec_.src));
}

std::shared_ptr<const RecordKernel> record_kernel(const RecordSpec& spec, Isa isa) {
    return records().get_or_create({spec, isa}, [&] {
        return generated_kernel([&] { return std::make_shared<const RecordKernel>(spec, isa); });
    });
}

CacheInfo panel_cache_info() {
    CacheInfo info = panels().info();
    const CacheInfo others = records().info();
    info.entries += others.entries;
    info.bytes += others.bytes;
    info.misses += others.misses;
    return info;
}

void panel_cache_clear() {
    panels().clear();
    records().clear();
}

}  // namespace dlprim
