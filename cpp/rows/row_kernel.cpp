#include "rows/row_kernel.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "jit/cache.h"
#include "jit/machine.h"
#include "jit/pricing.h"
#include "jit/profile.h"
#include "rows/emit_rows.h"
#include "rows/row_plan.h"
#include "rows/row_reference.h"

namespace dlprim {
namespace {

constexpr double kCyclesPerCall = 40;
constexpr double kAdditionsPerCycle = 1.5;  // with the loads and stores around them
constexpr CacheBounds kBounds{.entries = 4096, .bytes = std::int64_t{64} << 20};

struct RowKey {
    RowSpec spec;
    Isa isa;

    friend bool operator==(const RowKey&, const RowKey&) = default;
};

struct RowKeyHash {
    std::size_t operator()(const RowKey& key) const noexcept {
        return std::hash<RowSpec>{}(key.spec) * 31 + static_cast<std::size_t>(key.isa);
    }
};

using RowCache = Cache<RowKey, RowKernel, RowKeyHash>;

RowCache& cache() { return process_cache<RowCache, kBounds>(); }

// The level of the code for a level: products of 8 bits and of tiles mean nothing to rows.
Isa row_isa(Isa isa) {
    if (isa >= Isa::avx512_bf16) return Isa::avx512_bf16;
    return isa >= Isa::avx512 ? Isa::avx512 : std::min(isa, Isa::avx2);
}

}  // namespace

RowKernel::RowKernel(RowSpec spec, Isa isa) : spec_(std::move(spec)), isa_(isa) {
    validate(spec_);
    if (isa_ == Isa::scalar) return;
    const RowPlan plan = make_row_plan(spec_, isa_);
    kept_rows_ = plan.kept_rows;
    vectors_ = plan.unroll;
    code_ = Code(emit_rows(plan), pages_for_profile());
    entry_ = code_.entry<Function>();
}

void RowKernel::operator()(const RowArgs& args) const {
    if (Pricing* const pricing = Pricing::current()) return pricing->add(cycles(args));
    if (entry_ != nullptr) {
        entry_(&args);
    } else {
        reference_rows(spec_, args);
    }
}

std::string RowKernel::name() const {
    return "rows_" + std::string(name_of(isa_)) + "_" + to_string(spec_);
}

double RowKernel::cycles(const RowArgs& args) const {
    const Machine& machine = this_machine();
    double additions = 0;
    for (const RowInstruction& it : spec_.instructions) additions += cost_of(it);
    const double vectors = std::ceil(static_cast<double>(args.columns) / machine.vector_lanes());
    std::int64_t rows = args.rows;
    if (args.list != nullptr && args.counts != nullptr) {
        rows = std::accumulate(args.counts, args.counts + args.rows, std::int64_t{0});
    }
    return kCyclesPerCall + static_cast<double>(rows) * vectors * additions / kAdditionsPerCycle;
}

std::int64_t RowKernel::scratch_floats(std::int64_t columns) const {
    return kept_rows_ * ((columns + kRowScratchSlack) / kRowScratchSlack * kRowScratchSlack);
}

std::shared_ptr<const RowKernel> row_kernel(const RowSpec& spec, Isa isa) {
    if (isa > usable_isa()) {
        throw std::invalid_argument("isa='" + std::string(name_of(isa)) +
                                    "' is not usable here; the highest level is '" +
                                    std::string(name_of(usable_isa())) + "'");
    }
    const RowKey key{spec, row_isa(isa)};
    return cache().get_or_create(key, [&] {
        return generated_kernel(
            [&] { return std::make_shared<const RowKernel>(key.spec, key.isa); });
    });
}

CacheInfo row_cache_info() { return cache().info(); }

void row_cache_clear() { cache().clear(); }

}  // namespace dlprim
