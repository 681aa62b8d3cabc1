#include "primitives/layers/pixel_programs.h"

#include <algorithm>
#include <optional>

#include "primitives/programs/activation_programs.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

// Channels whose pixels are read one behind the other: one strip, in registers.
constexpr std::int64_t kNarrow = 64;
// How far ahead is prefetched then: the hardware's prefetchers do not look beyond a page.
constexpr std::int64_t kAheadBytes = 2 * 1024;
// Pixels of more channels, which are treated strip by strip: few enough to stay near, in bytes of a
// tensor, but enough to amortise the values of columns.
constexpr std::int64_t kGroupBytes = 32 * 1024;
constexpr std::int64_t kFewest = 8;

}  // namespace

// Writes a program and notes where its operands are.
class PixelProgram::Writer {
public:
    Writer(DType dtype, const PixelRows& like) : dtype_(dtype), like_(like) {
        const bool narrow = like.channels <= kNarrow;
        const std::int64_t bytes = like.channels * size_of(dtype);
        program_.together_ = narrow ? 0 : std::max(kGroupBytes / bytes, kFewest);
        row_.fetch_ahead(static_cast<std::int32_t>(narrow ? kAheadBytes : kNarrow * size_of(dtype)));
    }

    RowValue tensor(Pointer pointer) {
        program_.pointers_.push_back(pointer);
        return row_.tensor(dtype_);
    }
    RowValue column(Pointer pointer) {
        program_.pointers_.push_back(pointer);
        return row_.column();
    }

    RowValue src() {
        return tensor([](const PixelRows& it) { return it.src; });
    }
    RowValue mean() {
        return column([](const PixelRows& it) -> const void* { return it.mean; });
    }
    RowValue scale() {
        if (!scale_) {
            scale_ = column([](const PixelRows& it) -> const void* { return it.scale; });
        }
        return *scale_;
    }
    RowValue bias() {
        if (!bias_) bias_ = column([](const PixelRows& it) -> const void* { return it.bias; });
        return *bias_;
    }
    RowValue saved() {
        if (!saved_) saved_ = tensor([](const PixelRows& it) { return it.saved; });
        return *saved_;
    }

    // What the gate lets through of `diff`: the mask's bits, where the result is positive, where it
    // would be if it were computed again from `centred`, or all.
    RowValue passed(RowValue diff, std::optional<RowValue> centred) {
        if (!like_.relu) return diff;
        if (like_.relu_mask != nullptr) {
            if (!bits_) {
                bits_ = row_.bits();
                program_.pointers_.push_back(
                    [](const PixelRows& it) -> const void* { return it.relu_mask; });
            }
            return row_.gated(*bits_, diff);
        }
        if (like_.saved != nullptr) return select(saved() <= 0.0F, 0.0F, diff);
        if (!centred) return diff;
        return select(multiply_add(*centred, scale(), bias()) <= 0.0F, 0.0F, diff);
    }

    void store(RowValue value) {
        program_.pointers_.push_back([](const PixelRows& it) -> const void* { return it.out; });
        row_.store(dtype_, value);
    }
    void store_mask(RowValue value) {
        program_.pointers_.push_back(
            [](const PixelRows& it) -> const void* { return it.relu_mask_out; });
        row_.store_bits(value);
    }
    void add_to_sums(RowValue value) {
        program_.pointers_.push_back([](const PixelRows& it) -> const void* { return it.sums; });
        row_.add_to_column(value);
    }
    void add_to_products(RowValue value) {
        program_.pointers_.push_back(
            [](const PixelRows& it) -> const void* { return it.products; });
        row_.add_to_column(value);
    }

    RowBuilder& row() { return row_; }

    PixelProgram finished() {
        program_.kernel_ = row_kernel(row_.spec());
        return std::move(program_);
    }

private:
    DType dtype_;
    const PixelRows& like_;
    RowBuilder row_;
    PixelProgram program_;
    std::optional<RowValue> scale_;
    std::optional<RowValue> bias_;
    std::optional<RowValue> saved_;
    std::optional<std::uint8_t> bits_;
};

PixelProgram PixelProgram::statistics(DType dtype, const PixelRows& like) {
    Writer it(dtype, like);
    const RowValue centred = it.src() - it.mean();
    it.add_to_sums(centred);
    it.add_to_products(centred * centred);
    return it.finished();
}

PixelProgram PixelProgram::normalize(DType dtype, const PixelRows& like) {
    Writer it(dtype, like);
    RowValue value = multiply_add(it.src() - it.mean(), it.scale(), it.bias());
    if (like.residual != nullptr) {
        value = value + it.tensor([](const PixelRows& rows) { return rows.residual; });
    }
    if (like.relu) value = activated(Activation::relu, value);
    if (like.relu_mask_out != nullptr) {
        value = rounded(dtype, value);
        it.store_mask(value);
    }
    it.store(value);
    return it.finished();
}

PixelProgram PixelProgram::add_gradients(DType dtype, const PixelRows& like) {
    Writer it(dtype, like);
    const RowValue centred = it.src() - it.mean();
    const RowValue diff = it.tensor([](const PixelRows& rows) { return rows.diff_dst; });
    RowValue passed = it.passed(diff, centred);
    if (like.diff_addend != nullptr) {
        passed = passed +
                 it.passed(it.tensor([](const PixelRows& rows) { return rows.diff_addend; }),
                           centred);
    }
    it.add_to_sums(passed);
    it.add_to_products(passed * centred);
    if (like.out != nullptr) it.store(passed);
    return it.finished();
}

PixelProgram PixelProgram::apply_gradients(DType dtype, const PixelRows& like) {
    Writer it(dtype, like);
    const RowValue centred = it.src() - it.mean();
    const RowValue passed =
        it.passed(it.tensor([](const PixelRows& rows) { return rows.diff_dst; }), centred);
    const RowValue mean_diff =
        it.column([](const PixelRows& rows) -> const void* { return rows.mean_diff; });
    const RowValue mean_slope =
        it.column([](const PixelRows& rows) -> const void* { return rows.mean_slope; });
    it.store(multiply_add(-centred, mean_slope, passed - mean_diff) * it.scale());
    return it.finished();
}

PixelProgram PixelProgram::through_activation(DType dtype, Activation activation,
                                              const PixelRows& like) {
    PixelRows gated = like;
    gated.relu = activation == Activation::none || activation == Activation::relu;
    Writer it(dtype, gated);
    const RowValue diff = it.tensor([](const PixelRows& rows) { return rows.diff_dst; });
    RowValue passed = it.passed(diff, std::nullopt);
    if (!gated.relu) {
        const RowValue saved = it.saved();
        const RowValue slope = select(is_nan(saved), saved, slope_of(activation, saved, it.row()));
        passed = rounded(dtype, diff * slope);
    }
    if (like.out != nullptr) it.store(passed);
    if (like.sums != nullptr) it.add_to_sums(passed);
    PixelProgram program = it.finished();
    // About in the order of the memory: there is little to keep for a channel.
    if (program.together_ != 0) program.together_ = kFewest;
    return program;
}

void PixelProgram::operator()(const PixelRows& it) const {
    RowArgs args{.columns = it.channels};
    const std::vector<RowOperand>& operands = kernel_->spec().operands;
    for (std::size_t i = 0; i < operands.size(); ++i) {
        const bool bits = operands[i].shape == RowShape::bits;
        const std::int64_t row = it.distance * size_of(operands[i].dtype);
        args.operands.at(i) = {const_cast<void*>(pointers_[i](it)), bits ? it.mask_distance : row};
    }
    const std::int64_t together = together_ == 0 ? it.pixels : together_;
    for (std::int64_t first = 0; first < it.pixels; first += together) {
        args.rows = std::min(together, it.pixels - first);
        (*kernel_)(args);
        for (std::size_t i = 0; i < operands.size(); ++i) {
            if (operands[i].shape == RowShape::column) continue;
            RowArgs::Operand& operand = args.operands.at(i);
            operand.data = static_cast<char*>(operand.data) + args.rows * operand.stride;
        }
    }
}

}  // namespace dlprim
