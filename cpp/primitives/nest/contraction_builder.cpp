#include "primitives/nest/contraction_builder.h"

#include <algorithm>
#include <utility>

#include "jit/machine.h"
#include "primitives/nest/indexed_product.h"

namespace dlprim {
namespace {

// Derives the loops and the dimensions of the kernel; the terms are contraction_terms.cpp's.
class Builder {
public:
    Builder(const ProductFormula& statement, const ContractionLayouts& layouts,
            const Mapping& mapping)
        : statement_(statement), mapping_(mapping), product_(statement, layouts, mapping) {}

    Contraction build() {
        made_.dtype = product_.a.dtype();
        made_.b_type = product_.b.dtype();
        made_.c_type = product_.c.dtype();
        if (statement_.factors.empty()) made_.dtype = made_.b_type = made_.c_type;
        add_loops();
        set_kernel();
        add_terms(product_, made_);
        if (!statement_.factors.empty()) weigh();
        return std::move(made_);
    }

private:
    bool is_loop_of(char letter, const std::string& dimension) const {
        return !dimension.empty() && letter == dimension.back();
    }

    // Of the indices that are one of a loop.
    std::int64_t unit(char letter) const {
        const std::int64_t block = product_.block(letter);
        const std::int64_t whole = std::max<std::int64_t>(product_.extent(letter), 1);
        if (is_loop_of(letter, mapping_.depth)) {
            if (mapping_.depth_unit > 0) return mapping_.depth_unit;
            return block > 1 ? block : whole;
        }
        if (is_loop_of(letter, mapping_.columns)) return block > 1 ? block : whole;
        return is_loop_of(letter, mapping_.rows) ? block : 1;
    }

    void add_loops() {
        const std::int64_t element = size_of(made_.dtype), c_element = size_of(made_.c_type);
        for (const char letter : mapping_.loops) {
            const bool along_rows = letter == product_.rows_letter() && product_.rows.is_sum();
            ContractionLoop loop{.letter = letter, .bias = bias_stride(letter)};
            if (!product_.is_index(letter)) {
                loop.extent = product_.selected();
                loop.c = product_.c.step(mapping_.shifts.back()) * c_element;
                made_.loops.push_back(loop);
                continue;
            }
            loop.sum = !product_.c.mentions(letter);
            if (along_rows || letter == product_.walk_letter) {
                // What follows a sum of indices; of A and B, the terms say it.
                if (along_rows && !product_.rows_are_whole()) continue;
                const Line& line = along_rows ? product_.rows : product_.walk;
                loop.extent = line.axis.out;
                loop.c = line.c * c_element;
                if (along_rows) loop.a = line.axis.phases.front().in_step * line.a * element;
            } else {
                const std::int64_t unit = this->unit(letter);
                loop.extent = Blocks{product_.extent(letter), unit}.count();
                // A sum of nothing is written once, too.
                if (is_loop_of(letter, mapping_.depth))
                    loop.extent = std::max<std::int64_t>(loop.extent, 1);
                loop.a = product_.a.block_stride(letter, unit) * element;
                loop.b = product_.b.block_stride(letter, unit) * element;
                loop.c = product_.c.block_stride(letter, unit) * c_element;
            }
            made_.loops.push_back(loop);
        }
    }

    std::int64_t bias_stride(char letter) const {
        const std::size_t place = mapping_.bias.find(letter);
        if (place == std::string::npos) return 0;
        std::int64_t stride = unit(letter) * size_of(DType::f32);
        for (const char inner : mapping_.bias.substr(place + 1)) stride *= product_.extent(inner);
        return stride;
    }

    Dimension dimension(char letter) const {
        Dimension made{.loop = made_.loop_of(letter), .total = product_.extent(letter)};
        made.unit = std::max<std::int64_t>(std::min(unit(letter), made.total), 1);
        return made;
    }

    void set_kernel() {
        made_.columns = dimension(mapping_.columns.back());
        if (mapping_.rows.size() == 1) {
            made_.rows = dimension(mapping_.rows.back());
            if (product_.rows.is_sum()) made_.rows.total = product_.rows.axis.out;
        }
        made_.block_rows = product_.block_rows();
        made_.ldc = product_.ldc();
        made_.accumulates = statement_.adds_to_result;
        if (statement_.factors.empty()) return;
        const char depth = mapping_.depth.back();
        made_.batch = dimension(mapping_.batch != 0 ? mapping_.batch : depth);
        // An empty sum is one of which no entry exists; a minibatch may be empty.
        if (mapping_.batch == 0) made_.batch.total = std::max<std::int64_t>(made_.batch.total, 1);
        made_.ldb = product_.b.step(depth, product_.word);
        made_.trans_a = mapping_.transposed_a;
        for (int i = 0; i < static_cast<int>(made_.loops.size()); ++i) {
            const ContractionLoop& loop = made_.loop_at(i);
            if (!product_.is_index(loop.letter)) made_.selector_loop = i;
            if (loop.letter != product_.walk_letter) continue;
            (loop.sum ? made_.entry_loop : made_.selector_loop) = i;
        }
        if (made_.entry_loop < 0) return;
        const Line& walk = product_.walk;
        made_.fetching.entry_a = walk.axis.phases.front().in_step * walk.a * size_of(made_.dtype);
        made_.fetching.entry_b = walk.b * size_of(made_.dtype);
    }

    void weigh() {
        made_.bytes_a = product_.a.bytes() * part_read(product_.walk.axis) *
                        part_read(product_.inner_line().axis);
        made_.bytes_b = product_.b.bytes();
        made_.bytes_c = product_.c.bytes();
        made_.flops = 2;
        for (const char index : product_.indices) {
            made_.flops *= static_cast<double>(product_.extent(index));
        }
    }

    const ProductFormula& statement_;
    const Mapping& mapping_;
    IndexedProduct product_;
    Contraction made_;
};

}  // namespace

Contraction contraction_from(const ProductFormula& statement, const ContractionLayouts& layouts,
                             const Mapping& mapping) {
    return Builder(statement, layouts, mapping).build();
}

void fetch_far_weights(Contraction& product) {
    constexpr double kSmall = 1.0 / 16;
    const double near = this_machine().l2;
    const double few = std::max(kSmall * near, std::min(product.bytes_a, product.bytes_c));
    // Masks of relu need the register that counts fetches.
    const bool can = !product.epilogue.relu_mask;
    const bool is_far = product.entry_loop < 0 && product.bytes_a < near && product.bytes_b > few;
    product.fetching.far_b = can && is_far;
}

namespace {

std::int64_t width_of_part(const Contraction& whole, std::int64_t parts) {
    constexpr std::int64_t kLine = kCacheLineBytes / size_of(DType::f32);
    return rounded_up((whole.columns.unit + parts - 1) / parts, kLine);
}

char unused_letter(const Contraction& it) {
    char letter = 'z';
    while (it.loop_of(letter) >= 0) --letter;
    return letter;
}

}  // namespace

std::vector<std::int64_t> parts_of_columns(const Contraction& whole) {
    const Dimension& columns = whole.columns;
    const bool is_cut = columns.part_loop >= 0 || whole.gaps != Gaps{};
    if (is_cut || whole.loops.size() == LoopNest::kMostLoops) return {};
    for (const std::vector<Term>& terms : whole.classes) {
        for (const Term& term : terms) {
            if (term.n > 0) return {};
        }
    }
    std::vector<std::int64_t> found;
    const bool is_single = whole.loop_at(columns.loop).extent == 1;
    for (std::int64_t parts = 2; parts <= columns.unit; ++parts) {
        const std::int64_t width = width_of_part(whole, parts);
        if (Blocks{columns.unit, width}.count() < parts) continue;
        if (is_single || parts * width == columns.unit) found.push_back(parts);
    }
    return found;
}

Contraction in_parts_of_columns(const Contraction& whole, std::int64_t parts) {
    Contraction made = whole;
    Dimension& columns = made.columns;
    columns.unit = width_of_part(whole, parts);
    columns.parts = parts;
    columns.part_loop = static_cast<int>(made.loops.size());
    made.loops.push_back({.letter = unused_letter(whole),
                          .extent = parts,
                          .b = columns.unit * elements_per_word(made.dtype) * size_of(made.b_type),
                          .c = columns.unit * size_of(made.c_type),
                          .bias = columns.unit * size_of(DType::f32)});
    // Whose rows share what they fetch, as the whole block is of one thread.
    made.fetching.far_b = made.fetching.next_b = false;
    return made;
}

Schedule with_parts_of_columns(const Contraction& whole, const Schedule& schedule) {
    Schedule made = schedule;
    const auto is_shared = [](const Level& level) { return level.parallel; };
    const auto last = std::find_if(made.levels.rbegin(), made.levels.rend(), is_shared);
    made.levels.insert(last.base(), {unused_letter(whole), 1, true});
    return made;
}

}  // namespace dlprim
