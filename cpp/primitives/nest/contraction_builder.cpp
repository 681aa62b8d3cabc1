#include "primitives/nest/contraction_builder.h"

#include <algorithm>
#include <utility>

#include "primitives/nest/indexed_product.h"

namespace dlprim {
namespace {

// Derives the loops and the dimensions of the kernel; the terms are contraction_terms.cpp's.
class Builder {
public:
    Builder(const Statement& statement, const ContractionLayouts& layouts, const Mapping& mapping)
        : statement_(statement), mapping_(mapping), product_(statement, layouts, mapping) {}

    Contraction build() {
        made_.dtype = product_.a.dtype();
        made_.c_type = product_.c.dtype();
        if (statement_.factors.empty()) made_.dtype = made_.c_type;
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
        for (const char letter : mapping_.loops) {
            ContractionLoop loop{.letter = letter};
            if (!product_.is_index(letter)) {
                loop.extent = product_.selected();
                loop.c = product_.c.step(mapping_.shifts.back()) * size_of(made_.c_type);
            } else if (letter == product_.rows_letter() && product_.rows.is_sum()) {
                if (!product_.rows_are_whole()) continue;
                set_along(product_.rows, loop);
                loop.a = product_.rows.axis.phases.front().in_step * product_.rows.a *
                         size_of(made_.dtype);
            } else if (letter == product_.walk_letter) {
                set_along(product_.walk, loop);
            } else {
                set_blocks(loop);
            }
            loop.bias = bias_stride(letter);
            made_.loops.push_back(loop);
        }
    }

    // What follows a sum of indices; of A and B, the terms say it.
    void set_along(const Line& line, ContractionLoop& loop) const {
        loop.extent = line.axis.out;
        loop.c = line.c * size_of(made_.c_type);
        loop.sum = !product_.c.mentions(loop.letter);
    }

    void set_blocks(ContractionLoop& loop) const {
        const std::int64_t unit = this->unit(loop.letter);
        loop.extent = Blocks{product_.extent(loop.letter), unit}.count();
        loop.sum = !product_.c.mentions(loop.letter);
        // A sum of nothing is written once, too.
        if (is_loop_of(loop.letter, mapping_.depth))
            loop.extent = std::max<std::int64_t>(loop.extent, 1);
        const std::int64_t element = size_of(made_.dtype);
        loop.a = product_.a.block_stride(loop.letter, unit) * element;
        loop.b = product_.b.block_stride(loop.letter, unit) * element;
        loop.c = product_.c.block_stride(loop.letter, unit) * size_of(made_.c_type);
    }

    std::int64_t bias_stride(char letter) const {
        const std::size_t place = mapping_.bias.find(letter);
        if (place == std::string::npos) return 0;
        std::int64_t stride = unit(letter) * size_of(DType::f32);
        for (const char inner : mapping_.bias.substr(place + 1)) stride *= product_.extent(inner);
        return stride;
    }

    Dimension dimension(char letter) const {
        Dimension made;
        for (std::size_t i = 0; i < made_.loops.size(); ++i) {
            if (made_.loops[i].letter == letter) made.loop = static_cast<int>(i);
        }
        made.total = product_.extent(letter);
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
        for (std::size_t i = 0; i < made_.loops.size(); ++i) {
            const char letter = made_.loops[i].letter;
            if (!product_.is_index(letter)) made_.selector_loop = static_cast<int>(i);
            if (letter != product_.walk_letter) continue;
            (made_.loops[i].sum ? made_.entry_loop : made_.selector_loop) = static_cast<int>(i);
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

    const Statement& statement_;
    const Mapping& mapping_;
    IndexedProduct product_;
    Contraction made_;
};

}  // namespace

Contraction contraction_from(const Statement& statement, const ContractionLayouts& layouts,
                             const Mapping& mapping) {
    return Builder(statement, layouts, mapping).build();
}

}  // namespace dlprim
