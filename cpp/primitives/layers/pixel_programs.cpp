#include "primitives/layers/pixel_programs.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "jit/cache.h"
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
        program_.group_bytes_ = narrow ? 0 : kGroupBytes;
        row_.fetch_ahead(
            static_cast<std::int32_t>(narrow ? kAheadBytes : kNarrow * size_of(dtype)));
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
    RowValue let_through(RowValue diff, std::optional<RowValue> centred) {
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

    void treat_few_together() {
        if (program_.group_bytes_ != 0) program_.group_bytes_ = 1;
    }

    PixelProgram finished() {
        program_.kernel_ = row_kernel(row_.spec());
        return std::move(program_);
    }

    void statistics();
    void normalize();
    void add_gradients();
    void apply_gradients();
    void activation(Activation activation);

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

void PixelProgram::Writer::statistics() {
    const RowValue centred = src() - mean();
    add_to_sums(centred);
    add_to_products(centred * centred);
}

void PixelProgram::Writer::normalize() {
    RowValue value = multiply_add(src() - mean(), scale(), bias());
    if (like_.residual != nullptr) {
        value = value + tensor([](const PixelRows& rows) { return rows.residual; });
    }
    if (like_.relu) value = activated(Activation::relu, value);
    if (like_.relu_mask_out != nullptr) {
        value = rounded(dtype_, value);
        store_mask(value);
    }
    store(value);
}

void PixelProgram::Writer::add_gradients() {
    const RowValue centred = src() - mean();
    const RowValue diff = tensor([](const PixelRows& rows) { return rows.diff_dst; });
    RowValue passed = let_through(diff, centred);
    if (like_.diff_addend != nullptr) {
        passed =
            passed +
            let_through(tensor([](const PixelRows& rows) { return rows.diff_addend; }), centred);
    }
    add_to_sums(passed);
    add_to_products(passed * centred);
    if (like_.out != nullptr) store(passed);
}

void PixelProgram::Writer::apply_gradients() {
    const RowValue centred = src() - mean();
    const RowValue passed =
        let_through(tensor([](const PixelRows& rows) { return rows.diff_dst; }), centred);
    const RowValue mean_diff =
        column([](const PixelRows& rows) -> const void* { return rows.mean_diff; });
    const RowValue mean_slope =
        column([](const PixelRows& rows) -> const void* { return rows.mean_slope; });
    store(multiply_add(-centred, mean_slope, passed - mean_diff) * scale());
}

void PixelProgram::Writer::activation(Activation activation) {
    const RowValue diff = tensor([](const PixelRows& rows) { return rows.diff_dst; });
    RowValue result = diff;
    if (activation == Activation::none || activation == Activation::relu) {
        result = let_through(diff, std::nullopt);
    } else {
        const RowValue slope =
            select(is_nan(saved()), saved(), slope_of(activation, saved(), row_));
        result = rounded(dtype_, diff * slope);
    }
    if (like_.out != nullptr) store(result);
    if (like_.sums != nullptr) add_to_sums(result);
    // About in the order of the memory: there is little to keep for a channel.
    treat_few_together();
}

const PixelProgram& PixelProgram::of(PixelPass pass, DType dtype, const PixelRows& like,
                                     Activation activation) {
    const std::array key = {static_cast<int>(pass),
                            static_cast<int>(dtype),
                            static_cast<int>(activation),
                            static_cast<int>(like.channels <= kNarrow),
                            static_cast<int>(like.relu),
                            static_cast<int>(like.saved != nullptr),
                            static_cast<int>(like.relu_mask != nullptr),
                            static_cast<int>(like.relu_mask_out != nullptr),
                            static_cast<int>(like.residual != nullptr),
                            static_cast<int>(like.diff_addend != nullptr),
                            static_cast<int>(like.out != nullptr),
                            static_cast<int>(like.sums != nullptr)};
    static std::map<std::array<int, key.size()>, PixelProgram>& known =
        *new std::map<std::array<int, key.size()>, PixelProgram>;
    {
        const std::lock_guard lock(short_lock(&known));
        const auto found = known.find(key);
        if (found != known.end()) return found->second;
    }
    Writer it(dtype, like);
    switch (pass) {
        case PixelPass::statistics: it.statistics(); break;
        case PixelPass::normalize: it.normalize(); break;
        case PixelPass::add_gradients: it.add_gradients(); break;
        case PixelPass::apply_gradients: it.apply_gradients(); break;
        default: it.activation(activation);
    }
    PixelProgram made = it.finished();
    const std::lock_guard lock(short_lock(&known));
    return known.try_emplace(key, std::move(made)).first->second;
}

void PixelProgram::operator()(const PixelRows& it) const {
    RowArgs args{.columns = it.channels};
    const std::vector<RowOperand>& operands = kernel_->spec().operands;
    for (std::size_t i = 0; i < operands.size(); ++i) {
        const bool bits = operands[i].shape == RowShape::bits;
        const std::int64_t row = it.distance * size_of(operands[i].dtype);
        args.operands.at(i) = {const_cast<void*>(pointers_[i](it)), bits ? it.mask_distance : row};
    }
    const std::int64_t bytes = it.channels * size_of(operands.front().dtype);
    const std::int64_t together =
        group_bytes_ == 0 ? it.pixels : std::max(group_bytes_ / bytes, kFewest);
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
