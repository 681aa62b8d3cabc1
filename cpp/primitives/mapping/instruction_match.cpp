#include "primitives/mapping/instruction_match.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>

#include "primitives/mapping/product_walk.h"

namespace dlprim {
namespace {

constexpr std::size_t kBestFew = 4;

using Loops = std::vector<ProductIndex>;

// What one loop of an instruction goes along; several indices are one in packed operands alone.
struct Candidate {
    ProductIndex index = {};
    bool is_fused = false;
};

// Nothing where the instruction has no such loop; an index of one value where the product has none.
std::vector<Candidate> candidates(const Loops& indices, bool has_loop) {
    if (!has_loop || indices.empty()) return {{}};
    std::vector<Candidate> made;
    Candidate all{{.extent = extent_of(indices)}, true};
    for (const ProductIndex& it : indices) {
        made.push_back({it, false});
        all.index.members |= it.members;
    }
    if (indices.size() > 1) made.push_back(all);
    return made;
}

class Matcher {
public:
    Matcher(const StridedProduct& product, bool exchanges, const InstructionForm& form)
        : it_(exchanges ? exchanged(product) : product), exchanges_(exchanges), form_(form) {
        for (Loops* indices : {&it_.outer, &it_.rows, &it_.columns, &it_.sums}) merge(*indices);
    }

    void add_to(std::vector<InstructionMatch>& matches, const Machine& machine) const {
        for (const Candidate& row : candidates(it_.rows, form_.has(LoopRole::row))) {
            for (const Candidate& column : candidates(it_.columns, form_.has(LoopRole::column))) {
                for (const Candidate& sum : candidates(it_.sums, form_.has(LoopRole::sum))) {
                    matches.push_back(match({row, column, sum}, machine));
                }
            }
        }
    }

private:
    using Chosen = std::array<Candidate, 3>;  // row, column, sum

    static const Candidate& of(LoopRole role, const Chosen& chosen) {
        return chosen.at(role == LoopRole::row ? 0 : role == LoopRole::column ? 1 : 2);
    }

    InstructionMatch match(const Chosen& chosen, const Machine& machine) const {
        InstructionMatch made{.exchanges = exchanges_,
                              .rows = chosen[0].index.members,
                              .columns = chosen[1].index.members,
                              .sums = chosen[2].index.members};
        made.packs_a = packs(form_.places_a(), &ProductIndex::a, chosen);
        made.packs_b = packs(form_.places_b(), &ProductIndex::b, chosen);
        made.packs_c = packs(form_.places_c(), &ProductIndex::c, chosen);
        const double products = it_.flops() / 2;
        made.instructions = products;
        for (const LoopRole role : {LoopRole::row, LoopRole::column, LoopRole::sum}) {
            const auto extent = static_cast<double>(of(role, chosen).index.extent);
            const auto step = static_cast<double>(form_.extent(role));
            made.instructions *= std::ceil(extent / step) / extent;
        }
        made.used = products / (made.instructions * form_.products());
        made.cycles = made.instructions / form_.starts_per_cycle(machine);
        return made;
    }

    // Whether elements are not where the instruction reads or writes them. Of an index that several
    // loops go along, what the innermost needs is enough.
    static bool packs(const std::vector<InstructionPlace>& places,
                      std::int64_t ProductIndex::* stride, const Chosen& chosen) {
        const LoopRole* inner = nullptr;
        for (auto place = places.rbegin(); place != places.rend(); ++place) {
            const Candidate& it = of(place->role, chosen);
            const bool is_known = inner != nullptr && *inner == place->role;
            inner = &place->role;
            if (it.index.extent == 1 || is_known) continue;
            if (it.is_fused) return true;
            if (!place->is_anywhere && it.index.*stride != place->stride) return true;
        }
        return false;
    }

    StridedProduct it_;
    bool exchanges_;
    const InstructionForm& form_;
};

// "  768 instructions, 92 % of whose products are needed, 12288 cycles: i: n, j: k, k u: c; A in
// place, B packed, C in place"
std::string described(const InstructionMatch& match, const StridedProduct& product,
                      const InstructionForm& form) {
    const auto number = [](double value) { return std::to_string(std::llround(value)); };
    const std::string used = number(match.used * 100);
    std::string text = "  " + number(match.instructions) + " instructions, " + used +
                       " % of whose products are needed, " + number(match.cycles) + " cycles: ";
    const char* separator = match.exchanges ? "transposed product, " : "";
    const auto add = [&](LoopRole role, std::uint32_t members) {
        std::string loops;
        for (const InstructionLoop& it : form.loops()) {
            if (it.role == role) loops += (loops.empty() ? "" : " ") + it.name;
        }
        if (loops.empty()) return;
        text += separator + loops + ": " + (members == 0 ? "1" : names_of(members, product));
        separator = ", ";
    };
    add(LoopRole::row, match.rows);
    add(LoopRole::column, match.columns);
    add(LoopRole::sum, match.sums);
    return text + "; " + said_of_packing(match.packs_a, match.packs_b, match.packs_c) + "\n";
}

}  // namespace

std::vector<InstructionMatch> matches_of(const StridedProduct& product, const InstructionForm& form,
                                         const Machine& machine) {
    std::vector<InstructionMatch> matches;
    for (const bool exchanges : {false, true}) {
        Matcher(product, exchanges, form).add_to(matches, machine);
    }
    const auto packed = [](const InstructionMatch& it) {
        return int{it.packs_a} + int{it.packs_b} + int{it.packs_c};
    };
    std::stable_sort(matches.begin(), matches.end(),
                     [&](const InstructionMatch& left, const InstructionMatch& right) {
                         return std::tuple(left.cycles, packed(left)) <
                                std::tuple(right.cycles, packed(right));
                     });
    return matches;
}

std::string described_matches(const StridedProduct& product, const InstructionForm& form,
                              bool all) {
    const std::vector<InstructionMatch> matches = matches_of(product, form, this_machine());
    std::string text = "product of matrices on " + form.described() + "\n";
    const std::size_t shown = all ? matches.size() : std::min(matches.size(), kBestFew);
    for (std::size_t i = 0; i < shown; ++i) text += described(matches[i], product, form);
    if (shown < matches.size())
        text += "  and " + std::to_string(matches.size() - shown) + " more\n";
    return text;
}

}  // namespace dlprim
