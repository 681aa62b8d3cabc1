#include "primitives/conv/conv_correlation.h"

#include <algorithm>

#include "primitives/conv/joined_weights.h"

namespace dlprim {
namespace {

// From this many input channels on, a sum is long enough to be taken up again for the taps that
// miss the rim of a row.
constexpr std::int64_t kChannelsToOverlap = 32;

// Elements of the packed weights between neighbours; `in` and `out` as in Correlation.
struct WeightStrides {
    explicit WeightStrides(const Correlation& it)
        : tap(padded(it.in.block, it.dtype) * it.out.block),
          in(it.filter_height * it.filter_width * tap),
          out(it.joined_weights ? 2 * it.filter_height * joined_row(it) : it.in.per_group() * in),
          group(it.out.per_group() * out) {}

    // A filter row of joined weights.
    static std::int64_t joined_row(const Correlation& it) {
        return joined_pairs(it.filter_width, it.in.channels) * it.out.block * 2;
    }

    static std::int64_t padded(std::int64_t channels, DType dtype) {
        const std::int64_t word = elements_per_word(dtype);
        return (channels + word - 1) / word * word;
    }

    std::int64_t tap;
    std::int64_t in;
    std::int64_t out;
    std::int64_t group;
};

// Builds the classes of a Correlation: one for each set of filter rows that a row can have.
class Classes {
public:
    Classes(const Correlation& it, const ActivationStrides& a)
        : it_(it),
          a_(a),
          tap_bytes_(WeightStrides(it).tap * size_of(it.dtype)),
          element_(size_of(it.dtype)),
          kind_(it.in.channels >= kChannelsToOverlap ? Cover::overlapping : Cover::disjoint) {
        for (const AxisPhase& phase : it.pixels.phases) {
            pieces_.push_back(cover(it.pixels, phase, kind_));
        }
    }

    // One piece spans every row: rows can be cut anywhere.
    bool rows_are_whole() const {
        return !it_.has_cells() && pieces_.size() == 1 && pieces_.front().size() == 1;
    }

    void add_to(Contraction& contraction) {
        contraction.selections.resize(static_cast<std::size_t>(it_.rows.out));
        for (const AxisPhase& phase : it_.rows.phases) {
            for (std::int64_t i = 0; i < phase.count; ++i) {
                const std::int64_t row = phase.out_begin + i * phase.out_step;
                contraction.selections[static_cast<std::size_t>(row)] = {
                    .block_class = class_of(contraction, valid_taps(it_.rows, phase, i)),
                    .a = i * phase.in_step * a_.row * element_};
            }
        }
        contraction.sliding_a = slides_;
    }

private:
    int class_of(Contraction& contraction, const std::vector<Tap>& taps) {
        const auto key = std::find(known_.begin(), known_.end(), taps);
        if (key != known_.end()) return static_cast<int>(key - known_.begin());
        known_.push_back(taps);
        contraction.classes.push_back(terms_of(taps));
        return static_cast<int>(known_.size()) - 1;
    }

    std::vector<Term> terms_of(const std::vector<Tap>& row_taps) {
        std::vector<Term> terms;
        for (std::size_t i = 0; i < pieces_.size(); ++i) {
            const AxisPhase& phase = it_.pixels.phases[i];
            if (row_taps.empty()) {
                terms.push_back(term_of(phase, {{0, phase.count}, {}, true, true}, {}));
                continue;
            }
            for (const Piece& piece : pieces_[i]) terms.push_back(term_of(phase, piece, row_taps));
        }
        return terms;
    }

    Term term_of(const AxisPhase& phase, const Piece& piece, const std::vector<Tap>& row_taps) {
        Term term{.m = rows_are_whole() ? 0 : piece.outputs.size(),
                  .lda = phase.in_step * a_.pixel,
                  .c_row = phase.out_begin + piece.outputs.begin * phase.out_step,
                  .c_step = phase.out_step,
                  .first = piece.first,
                  .last = piece.last};
        const bool joined = can_join(piece.taps);
        const std::size_t taps = joined ? 1 : piece.taps.size();
        if (joined) {
            term.k = static_cast<std::int64_t>(piece.taps.size()) * it_.in.channels;
            slides_ = slides_ || term.lda < term.k;
        }
        const std::int64_t begin = piece.outputs.begin * phase.in_step;
        for (const Tap& row : row_taps) {
            for (std::size_t i = 0; i < taps; ++i) {
                const Tap& tap = piece.taps[i];
                term.entries_a.push_back((row.offset * a_.row + (begin + tap.offset) * a_.pixel) *
                                         element_);
                term.entries_b.push_back(weights_offset(row, tap));
            }
        }
        return term;
    }

    std::int64_t weights_offset(const Tap& row, const Tap& tap) const {
        if (!it_.joined_weights) {
            return (row.index * it_.filter_width + tap.index) * tap_bytes_;
        }
        const std::int64_t first = tap.index * it_.in.channels;
        const std::int64_t copy = first % 2;
        return ((copy * it_.filter_height + row.index) * WeightStrides::joined_row(it_) +
                first / 2 * it_.out.block * 2) *
               element_;
    }

    // Neighbouring taps of neighbouring pixels are one long row of A and of B where a pixel has no
    // other channels in between: with three channels, a k of 21 instead of seven of 3.
    bool can_join(const std::vector<Tap>& taps) const {
        if (it_.joined_weights && !taps.empty()) return true;
        if (it_.in.count() > 1 || kind_ == Cover::overlapping || taps.size() < 2) return false;
        if (it_.in.block % elements_per_word(it_.dtype) != 0) return false;
        for (std::size_t i = 1; i < taps.size(); ++i) {
            if (taps[i].index != taps[i - 1].index + 1) return false;
            if (taps[i].offset != taps[i - 1].offset + 1) return false;
        }
        return true;
    }

    const Correlation& it_;
    const ActivationStrides& a_;
    std::int64_t tap_bytes_;
    std::int64_t element_;
    Cover kind_;
    bool slides_ = false;
    std::vector<std::vector<Piece>> pieces_;  // by phase
    std::vector<std::vector<Tap>> known_;     // filter rows of each class
};

}  // namespace

namespace {

// Elements of the three operands.
struct Operands {
    explicit Operands(const Correlation& it)
        : a(activation_strides(it.layout, it.in, it.rows.in, it.pixels.in)),
          b(it),
          c(activation_strides(it.layout, it.out, it.rows.out * it.cell_height,
                               it.pixels.out * it.cell_width)) {}

    ActivationStrides a;
    WeightStrides b;
    ActivationStrides c;
};

// Loops g, n, out, in, p.
std::vector<ContractionLoop> loops_of(const Correlation& it, const Operands& operands,
                                      std::int64_t mask_pixel) {
    const auto& [a, b, c] = operands;
    const std::int64_t element = size_of(it.dtype);
    const bool nhwc = it.layout == Format::nhwc;
    const auto mask = [&](std::int64_t elements) { return elements / c.pixel * mask_pixel; };
    return {
        {.letter = 'g',
         .extent = it.in.groups,
         .a = a.group * element,
         .b = b.group * element,
         .c = c.group * element,
         .bias = it.out.channels * size_of(DType::f32),
         .mask = nhwc ? it.out.channels / 8 : mask(c.group)},
        {.letter = 'n',
         .extent = it.images,
         .a = a.image * element,
         .c = c.image * element,
         .mask = mask(c.image)},
        {.letter = it.out_letter,
         .extent = it.out.per_group(),
         .b = b.out * element,
         .c = c.block * element,
         .bias = it.out.block * size_of(DType::f32),
         .mask = nhwc ? it.out.block / 8 : mask(c.block)},
        {.letter = it.in_letter,
         .extent = it.in.per_group(),
         .a = a.block * element,
         .b = b.in * element,
         .sum = true},
        {.letter = 'p',
         .extent = it.rows.out,
         .c = it.cell_height * c.row * element,
         .mask = mask(c.row)},
    };
}

}  // namespace

Contraction contraction_of(const Correlation& it, const Epilogue& epilogue, double flops) {
    const Operands operands(it);
    const auto& [a, b, c] = operands;
    const std::int64_t element = size_of(it.dtype);
    const std::int64_t mask_pixel =
        ((it.layout == Format::nhwc ? it.out.total() : it.out.block) + 7) / 8;
    Classes classes(it, a);
    Contraction made;
    made.loops = loops_of(it, operands, mask_pixel);
    made.columns = {.loop = 2, .unit = it.out.block, .total = it.out.channels};
    made.batch = {.loop = 3, .unit = it.in.block, .total = it.in.channels};
    made.selector_loop = 4;
    if (classes.rows_are_whole()) {
        made.rows = {.loop = 5, .unit = 1, .total = it.pixels.out};
        made.loops.push_back({.letter = 'q',
                              .extent = it.pixels.out,
                              .a = it.pixels.phases.front().in_step * a.pixel * element,
                              .c = c.pixel * element,
                              .mask = mask_pixel});
    }
    made.block_rows = it.pixels.out;
    made.dtype = it.dtype;
    made.c_type = it.dtype;
    made.ldb = it.out.block;
    made.ldc = it.cell_width * c.pixel;
    made.ldmask = mask_pixel;
    made.epilogue = epilogue;
    if (it.has_cells()) {
        made.gaps = {.rows = static_cast<int>(it.cell_width) - 1,
                     .planes = static_cast<int>(it.cell_height) - 1};
        made.gap_stride = c.row * element;
    }
    made.bytes_a = static_cast<double>(it.images * a.image * element) * part_read(it.rows) *
                   part_read(it.pixels);
    made.bytes_b = static_cast<double>(it.in.groups * b.group * element);
    made.bytes_c = static_cast<double>(it.images * c.image * element);
    made.flops = flops;
    classes.add_to(made);
    return made;
}

}  // namespace dlprim
