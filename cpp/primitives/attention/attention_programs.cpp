#include "primitives/attention/attention_programs.h"

#include <bit>
#include <limits>

#include "rows/row_builder.h"

namespace dlprim {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr float kLog2e = 0x1.715476p+0F;
// Added to x, it leaves round(x) + 127 in the last bits of the sum, which are then the exponent of
// 2^round(x).
constexpr float kRounding = 0x1.8p+23F + 127;
constexpr float kWhole = 0x1.8p+23F;       // floats of this size have no fraction
constexpr float kOneExponent = 0x1p-126F;  // whose bits are 2^23
constexpr float kNoPower = -127;           // of which the exponent is 0: 2^-127 counts as 0

// 2^x for x that are hardly above 0, as few and as independent steps as softmax allows. What is
// stored as bfloat16 has an error of 2^-13.7, else 2^-24.
RowValue power_of_two(RowValue x, DType dtype) {
    const RowValue from = larger(kNoPower, x);  // NaN stays
    const RowValue rounded = from + kRounding;
    const RowValue scale = low_product(rounded, kOneExponent);
    const RowValue rest = from - (rounded - kRounding);
    RowValue power = 0;
    if (dtype == DType::bf16) {
        power = multiply_add(rest, 0x1.c3f6dap-5F, 0x1.f0de2p-3F);
        for (const float term : {0x1.62f31cp-1F, 0x1.fff692p-1F}) {
            power = multiply_add(power, rest, term);
        }
    } else {
        power = multiply_add(rest, 0x1.5b1a18p-10F, 0x1.3d0598p-7F);
        for (const float term : {0x1.c6b98p-5F, 0x1.ebf946p-3F, 0x1.62e426p-1F, 1.0F}) {
            power = multiply_add(power, rest, term);
        }
    }
    return power * scale;
}

bool adds_mask(const ScoresSpec& spec) { return spec.mask && *spec.mask != DType::u8; }

// Scores as a program has them: of base 2, so that their powers take one step less. What is added
// may be the lowest number there is, which a factor would make infinite, and then they are as asked
// for.
class Scores {
public:
    Scores(RowBuilder& row, const ScoresSpec& spec)
        : product_(products(row, spec.products)),
          factor_(row.scalar()),
          adds_mask_(adds_mask(spec)),
          is_capped_(spec.softcap != 0) {
        is_product_ = spec.softcap == 0 && !spec.mask && !spec.hides_later;
        score_ = product_ * factor_;
        if (is_capped_) {
            const RowValue capped = activated(Activation::tanh, score_);
            slope_ = 1.0F - capped * capped;
            score_ = capped * (adds_mask_ ? spec.softcap : spec.softcap * kLog2e);
        }
        if (spec.mask) {
            const RowValue mask = row.tensor(*spec.mask);
            score_ = adds_mask_ ? score_ + mask : select(mask == 0.0F, kLowest, score_);
        }
        if (spec.hides_later) score_ = score_ + row.tensor(DType::f32);
    }

    RowValue most() const { return highest(score_); }
    // What a score in its own units changes by as the scaled product does.
    RowValue sloped(RowValue diff) const { return is_capped_ ? diff * slope_ : diff; }
    // The power of two that remains of one of them, or of all when they are this.
    RowValue above(RowValue base) const {
        return is_product_ ? multiply_add(product_, factor_, -base) : above(score_, base);
    }
    RowValue above(RowValue score, RowValue base) const {
        return adds_mask_ ? (score - base) * kLog2e : score - base;
    }

private:
    static RowValue products(RowBuilder& row, DType dtype) {
        const RowValue product = row.tensor(dtype);
        return dtype == DType::f32 ? product : product - row.scalar();
    }

    RowValue product_;
    RowValue factor_;
    bool adds_mask_;
    bool is_capped_;
    bool is_product_ = false;
    RowValue slope_ = 0;
    RowValue score_ = 0;
};

// What is subtracted from the scores of a row: of one that sees no key all powers are then 0.
RowValue base_of(RowValue most) { return select(most == kLowest, 0.0F, most); }

}  // namespace

float score_factor(const ScoresSpec& spec, float scale) {
    if (spec.softcap != 0) return scale / spec.softcap;
    return adds_mask(spec) ? scale : scale * kLog2e;
}

namespace {

// Of a program for sequences of any length.
struct ProgramKey {
    enum class Program : std::uint8_t {
        highest,
        powers,
        sums,
        differentiating,
        adding,
        storing,
        shrinking,
        dividing
    } program;
    ScoresSpec scores = {};
    DType dtype = DType::f32;

    friend bool operator==(const ProgramKey&, const ProgramKey&) = default;
};
using Program = ProgramKey::Program;

struct ProgramHash {
    std::size_t operator()(const ProgramKey& key) const noexcept {
        const auto number = [](auto it) { return static_cast<std::size_t>(it); };
        const ScoresSpec& it = key.scores;
        return ((number(key.program) * 16 + number(key.dtype)) * 16 +
                number(it.mask.value_or(it.products))) *
                   8 +
               number(it.mask.has_value()) + 2 * number(it.hides_later) + 4 * number(it.is_first);
    }
};

RowSpec highest_program(const ScoresSpec& spec) {
    RowBuilder row;
    const Scores scores(row, spec);
    RowValue most = scores.most();
    if (spec.is_first) {
        row.store_per_row(most);
        return row.spec();
    }
    const RowValue before = row.per_row();
    most = larger(before, most);
    row.store_per_row(most);
    row.store_per_row(power_of_two(scores.above(before, base_of(most)), DType::f32));
    return row.spec();
}

RowSpec powers_program(const ScoresSpec& spec, DType dtype) {
    RowBuilder row;
    const Scores scores(row, spec);
    const RowValue base = base_of(row.per_row());
    const RowValue power = power_of_two(scores.above(base), dtype);
    RowValue total = sum(power);
    if (!spec.is_first) {
        const RowValue shrinks = row.per_row(), sum_before = row.per_row();
        total = multiply_add(sum_before, shrinks, total);
    }
    row.store(dtype, power);
    row.store_per_row(total);
    return row.spec();
}

RowSpec sums_program(const ScoresSpec& spec) {
    RowBuilder row;
    const Scores scores(row, spec);
    const RowValue base = base_of(row.per_row());
    const RowValue power = power_of_two(scores.above(base), DType::f32);
    RowValue total = 0, weighted = 0;
    if (spec.is_first) {
        total = sum(power);
        weighted = sum(power * row.tensor(DType::f32));
    } else {
        const RowValue shrinks = row.per_row(), total_before = row.per_row();
        const RowValue weighted_before = row.per_row();
        total = multiply_add(total_before, shrinks, sum(power));
        const RowValue here = sum(power * row.tensor(DType::f32));
        weighted = multiply_add(weighted_before, shrinks, here);
    }
    row.store_per_row(total);
    row.store_per_row(weighted);
    return row.spec();
}

RowSpec differentiating_program(const ScoresSpec& spec, DType dtype) {
    RowBuilder row;
    const Scores scores(row, spec);
    const RowValue base = base_of(row.per_row());
    const RowValue total = row.per_row(), weighted = row.per_row();
    const RowValue diff = row.tensor(DType::f32), scale = row.scalar();
    const RowValue inverse = select(total == 0.0F, 0.0F, 1.0F / total);
    const RowValue weight = power_of_two(scores.above(base), dtype) * inverse;
    row.store(dtype, weight);
    row.store(dtype, scores.sloped(weight * (diff - weighted * inverse)) * scale);
    return row.spec();
}

RowSpec adding_program(DType dtype) {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32), y = row.tensor(DType::f32);
    row.store(dtype, x + y);
    return row.spec();
}

RowSpec storing_program(DType dtype) {
    RowBuilder row;
    row.store(dtype, row.tensor(DType::f32));
    return row.spec();
}

RowSpec shrinking_program() {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32);
    const RowValue factor = row.per_row();
    row.store(DType::f32, x * factor);
    return row.spec();
}

RowSpec dividing_program(DType dtype) {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32), sum = row.per_row();
    row.store(dtype, x * select(sum == 0.0F, 0.0F, 1.0F / sum));
    return row.spec();
}

}  // namespace

std::shared_ptr<const RowKernel> highest_kernel(const ScoresSpec& spec) {
    return known_program<ProgramKey, ProgramHash>({Program::highest, spec},
                                                  [&] { return highest_program(spec); });
}

std::shared_ptr<const RowKernel> powers_kernel(const ScoresSpec& spec, DType dtype) {
    return known_program<ProgramKey, ProgramHash>({Program::powers, spec, dtype},
                                                  [&] { return powers_program(spec, dtype); });
}

std::shared_ptr<const RowKernel> sums_kernel(const ScoresSpec& spec) {
    return known_program<ProgramKey, ProgramHash>({Program::sums, spec},
                                                  [&] { return sums_program(spec); });
}

std::shared_ptr<const RowKernel> differentiating_kernel(const ScoresSpec& spec, DType dtype) {
    return known_program<ProgramKey, ProgramHash>({Program::differentiating, spec, dtype}, [&] {
        return differentiating_program(spec, dtype);
    });
}

std::shared_ptr<const RowKernel> adding_kernel(DType dtype) {
    return known_program<ProgramKey, ProgramHash>({Program::adding, {}, dtype},
                                                  [&] { return adding_program(dtype); });
}

std::shared_ptr<const RowKernel> storing_kernel(DType dtype) {
    return known_program<ProgramKey, ProgramHash>({Program::storing, {}, dtype},
                                                  [&] { return storing_program(dtype); });
}

std::shared_ptr<const RowKernel> shrinking_kernel() {
    return known_program<ProgramKey, ProgramHash>({Program::shrinking}, shrinking_program);
}

std::shared_ptr<const RowKernel> dividing_kernel(DType dtype) {
    return known_program<ProgramKey, ProgramHash>({Program::dividing, {}, dtype},
                                                  [&] { return dividing_program(dtype); });
}

std::shared_ptr<const RowKernel> weights_kernel(const ScoresSpec& spec, DType dtype, float zero) {
    RowBuilder row;
    const Scores scores(row, spec);
    const RowValue base = base_of(row.per_row());
    const RowValue power = power_of_two(scores.above(base), DType::f32);
    const RowValue total = sum(power) * row.scalar();
    RowValue weight = power * select(total == 0.0F, 0.0F, 1.0F / total);
    // The zero is added to a whole number, as it would else move halves to the other side.
    if (zero != 0) weight = ((weight + kWhole) - kWhole) + zero;
    row.store(dtype, weight);
    return row_kernel(row.spec());
}

std::shared_ptr<const RowKernel> signed_kernel() {
    RowBuilder row;
    const RowValue signs = row.constant(std::bit_cast<float>(0x80808080U));
    row.store(DType::f32, exclusive_or(row.tensor(DType::f32), signs, row.constant(0.0F)));
    return row_kernel(row.spec());
}

}  // namespace dlprim
