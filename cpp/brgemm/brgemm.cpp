#include "brgemm/brgemm.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "brgemm/emit.h"
#include "brgemm/reference.h"
#include "jit/cache.h"
#include "jit/machine.h"
#include "jit/pricing.h"
#include "jit/profile.h"

namespace dlprim {
namespace {

// Of a tile's loop along k; the steps that are left over stand behind it.
std::int64_t turns(const BrgemmSpec& spec, const RowGroup& group) {
    const std::int64_t whole = spec.k / elements_per_word(spec.a_type);
    return group.unroll > 0 ? std::max<std::int64_t>(whole / group.unroll, 1) : 1;
}

// Whether a loop along k may be told its turns: nothing else follows from them.
bool may_read_turns(const BrgemmPlan& plan) {
    const BrgemmSpec& spec = plan.spec;
    const bool fetches_residual = spec.prefetch_c && spec.beta == 0 && spec.epilogue.residual;
    if (spec.zero_point_a || spec.zero_point_b || fetches_residual ||
        registers_beside_products(spec, plan.isa) > 0) {
        return false;
    }
    for (const ColumnGroup& group : plan.columns) {
        for (const RowGroup& row : group.rows) {
            if (turns(spec, row) < 2) return false;
        }
    }
    return true;
}

// The least k whose loops go round twice and leave over what those of `plan` do.
std::int64_t least_depth(const BrgemmPlan& plan) {
    std::int64_t period = 1, most = 1;
    for (const ColumnGroup& group : plan.columns) {
        for (const RowGroup& row : group.rows) {
            period = std::lcm(period, std::int64_t{row.unroll});
            most = std::max(most, std::int64_t{row.unroll});
        }
    }
    const std::int64_t word = elements_per_word(plan.spec.a_type);
    const std::int64_t rest = plan.spec.k % (period * word);
    const std::int64_t missing = std::max<std::int64_t>(2 * most * word - rest, 0);
    const std::int64_t turn = period * word;
    return std::min(plan.spec.k, rest + (missing + turn - 1) / turn * turn);
}

}  // namespace

BrgemmPlan shared_plan(BrgemmPlan plan) {
    const BrgemmSpec& spec = plan.spec;
    // Tiles share what is fetched of B; those of AMX are configured by how many there are.
    if (plan.isa == Isa::scalar || plan.multiply == Multiply::tiles || spec.prefetch_b) return plan;
    const bool loops_columns = plan.columns.size() > 1 || plan.columns.front().count > 1;
    const bool loops_rows =
        std::any_of(plan.columns.begin(), plan.columns.end(), [](const ColumnGroup& group) {
            return group.rows.size() > 1 || group.rows.front().count > 1;
        });
    if (may_read_turns(plan)) {
        BrgemmSpec least = spec;
        least.k = least_depth(plan);
        // Sums of few words of k end beside the last products, in code that reads no turns.
        plan.reads_turns = registers_beside_products(least, plan.isa) == 0;
        if (plan.reads_turns) plan.spec.k = least.k;
    }
    if (loops_rows) plan.spec.m = 0;
    if (loops_columns) plan.spec.n = plan.tail_lanes;
    for (ColumnGroup& group : plan.columns) {
        if (loops_columns && !group.masked) group.count = kReadAtCall;
        for (RowGroup& row : group.rows) {
            if (loops_rows) row.count = kReadAtCall;
            row.cycles = 0;
            row.bound = {};
        }
    }
    return plan;
}

LoopCounts loop_counts(const BrgemmPlan& plan) {
    LoopCounts counts = {};
    auto* next = counts.begin();
    for (const ColumnGroup& group : plan.columns) {
        *next++ = group.count;
        for (const RowGroup& row : group.rows) {
            *next++ = row.count;
            *next++ = turns(plan.spec, row);
        }
    }
    return counts;
}

namespace {

constexpr double kCyclesPerCall = 40;
constexpr CacheBounds kBounds{.entries = 4096, .bytes = std::int64_t{256} << 20};
// Beside what cached kernels use.
constexpr CacheBounds kCodeBounds{.entries = 1024, .bytes = std::int64_t{32} << 20};

struct KernelKey {
    BrgemmSpec spec;
    Isa isa;

    friend bool operator==(const KernelKey&, const KernelKey&) = default;
};

struct KernelKeyHash {
    std::size_t operator()(const KernelKey& key) const noexcept {
        return std::hash<BrgemmSpec>{}(key.spec) * 31 + static_cast<std::size_t>(key.isa);
    }
};

using KernelCache = Cache<KernelKey, Brgemm, KernelKeyHash>;
using CodeCache = Cache<BrgemmPlan, BrgemmCode>;

KernelCache& cache() { return process_cache<KernelCache, kBounds>(); }
CodeCache& codes() { return process_cache<CodeCache, kCodeBounds>(); }

std::shared_ptr<const BrgemmCode> code_for(const BrgemmPlan& plan) {
    if (plan.isa == Isa::scalar) return nullptr;
    const BrgemmPlan shared = shared_plan(plan);
    return codes().get_or_create(shared, [&] {
        return std::make_shared<const BrgemmCode>(Code(emit_brgemm(shared), pages_for_profile()));
    });
}

std::string quoted(Isa isa) { return "'" + std::string(name_of(isa)) + "'"; }

KernelKey checked_key(const BrgemmSpec& spec, Isa isa) {
    try {
        if (isa > usable_isa()) {
            throw std::invalid_argument("isa=" + quoted(isa) +
                                        " is not usable here; the highest level is " +
                                        quoted(usable_isa()));
        }
        const BrgemmSpec request = validated(spec);
        return {request, kernel_isa(request, usable_isa(isa))};
    } catch (const std::invalid_argument& error) {
        if (verbose()) {
            report_machine();
            report(std::string("refused: ") + error.what());
        }
        throw;
    }
}

std::string reason_for_isa(const Brgemm& kernel, Isa asked) {
    const BrgemmSpec& spec = kernel.spec();
    if (kernel.isa() == detected_isa()) return "all this machine has";
    if (kernel.isa() == kernel_isa(spec, detected_isa())) {
        return std::string(name_of(spec.a_type)) + " uses no more";
    }
    if (usable_isa(asked) != asked) return "this CPU lacks " + quoted(asked);
    if (asked < usable_isa()) return "isa=" + quoted(asked) + " lowered it";
    return std::string(reason_for_lower_isa());
}

// Why the kernel is for this ISA when `asked` was the limit, and its tile.
std::string said_of(const Brgemm& kernel, Isa asked) {
    const Tile tile = kernel.plan().main_tile();
    return std::string(name_of(kernel.isa())) + " (" + reason_for_isa(kernel, asked) + "), tile " +
           std::to_string(tile.rows) + "x" + std::to_string(tile.vectors) + ", ";
}

std::shared_ptr<const Brgemm> generated(const KernelKey& key, Isa asked) {
    return generated_kernel(
        [&] {
            return std::make_shared<const Brgemm>(
                make_plan(key.spec, key.isa, machine_at(key.isa)));
        },
        [&](const Brgemm& kernel) { return said_of(kernel, asked); });
}

}  // namespace

Brgemm::Brgemm(BrgemmPlan plan)
    : plan_(std::move(plan)), counts_(loop_counts(plan_)), code_(code_for(plan_)) {
    if (code_) entry_ = code_->code.entry<Function>();
}

void Brgemm::operator()(const BrgemmArgs& args) const {
    if (Pricing* const pricing = Pricing::current()) return pricing->add(cycles(args.batch));
    if (entry_ != nullptr) {
        entry_(&args, counts_.data());
    } else {
        reference_brgemm(plan_.spec, args);
    }
}

std::string Brgemm::name() const {
    return "brgemm_" + std::string(name_of(plan_.isa)) + "_" + to_string(plan_.spec);
}

std::span<const std::uint8_t> Brgemm::code() const {
    return code_ ? code_->code.bytes() : std::span<const std::uint8_t>();
}

double Brgemm::flops(std::int64_t batch) const {
    const BrgemmSpec& spec = plan_.spec;
    return 2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) *
           static_cast<double>(spec.k) * static_cast<double>(batch);
}

double Brgemm::cycles(std::int64_t batch) const {
    const Machine& machine = this_machine();
    const BrgemmSpec& spec = plan_.spec;
    const double halves = std::max(2.0, machine.halves_rate);
    const double rate = is_int8(spec.a_type) ? 2 * halves : spec.a_type == DType::f32 ? 1 : halves;
    const double of_b = static_cast<double>(batch * spec.k * spec.n * size_of(spec.b_type));
    return kCyclesPerCall + std::max(flops(batch) / (machine.flops_per_cycle() * rate),
                                     of_b / machine.bytes_from_l2_per_cycle);
}

std::shared_ptr<const Brgemm> brgemm(const BrgemmSpec& spec, Isa isa) {
    const KernelKey key = checked_key(spec, isa);
    return cache().get_or_create(key, [&] { return generated(key, isa); });
}

std::shared_ptr<const Brgemm> brgemm(const BrgemmSpec& spec) { return brgemm(spec, usable_isa()); }

CacheInfo kernel_cache_info() { return cache().info(); }

CacheInfo kernel_code_info() { return codes().info(); }

void kernel_cache_clear() {
    cache().clear();
    codes().clear();
}

}  // namespace dlprim

std::size_t std::hash<dlprim::BrgemmPlan>::operator()(
    const dlprim::BrgemmPlan& plan) const noexcept {
    std::size_t seed = std::hash<dlprim::BrgemmSpec>{}(plan.spec);
    const auto mix = [&seed](auto value) {
        seed = (seed ^ static_cast<std::size_t>(value)) * 0x9e3779b97f4a7c15ULL;
    };
    mix(plan.isa);
    mix(plan.reads_turns);
    for (const dlprim::ColumnGroup& group : plan.columns) {
        mix(group.vectors * 2 + (group.masked ? 1 : 0));
        for (const dlprim::RowGroup& row : group.rows) {
            mix((row.tile.rows * 64 + row.tile.sets) * 64 + row.unroll);
        }
    }
    return seed;
}
