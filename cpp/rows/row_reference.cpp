#include "rows/row_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "jit/activation.h"
#include "jit/element_reference.h"
#include "rows/functions/rare_function.h"

namespace dlprim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t word(float x) { return std::bit_cast<std::uint32_t>(x); }

// The lower half of the bits.
float of_word(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

bool holds(Comparison comparison, float a, float b) {
    switch (comparison) {
        case Comparison::less: return a < b;
        case Comparison::less_equal: return a <= b;
        case Comparison::equal: return a == b;
        case Comparison::beats: return a > b || std::isnan(a);
        case Comparison::words_at_least: return word(a) >= word(b);
        default: return std::isnan(a) || std::isnan(b);
    }
}

float rounded_to(DType dtype, float x) {
    std::uint16_t stored = 0;
    set_element(dtype, &stored, 0, x);
    return element_at(dtype, &stored, 0);
}

template <class Values>
float reduced(RowOp op, const Values& values, const Values& centre, std::int64_t columns) {
    if (is_sum(op)) {
        const double less = op == RowOp::sum_about ? centre[0] : 0;
        double total = 0;
        for (std::int64_t i = 0; i < columns; ++i) total += values[i] - less;
        return static_cast<float>(total);
    }
    float best = op == RowOp::highest ? -kInfinity : kInfinity;
    for (std::int64_t i = 0; i < columns; ++i) {
        const bool better = op == RowOp::highest ? values[i] > best : values[i] < best;
        if (better) best = values[i];
    }
    return best;
}

class Interpreter {
public:
    Interpreter(const RowSpec& spec, const RowArgs& args)
        : spec_(spec),
          args_(args),
          uniform_(uniform_values(spec)),
          joined_(joined_products(spec)),
          times_(times_of(spec)),
          exact_(exact_values(spec)),
          uses_(uses_of(spec)) {
        for (const bool uniform : uniform_) {
            values_.emplace_back(uniform ? 1 : static_cast<std::size_t>(args.columns));
        }
    }

    void run(std::int64_t row) {
        const std::int64_t count = args_.counts == nullptr ? 0 : args_.counts[row];
        for (std::size_t i = 0; i < spec_.instructions.size(); ++i) {
            const RowInstruction& it = spec_.instructions[i];
            if (it.op == RowOp::carried) fill(values_[i], it.bits);
        }
        for (std::int64_t left = count; left > 0; --left, ++entry_) {
            run(row, true);
            for (const RowInstruction& it : spec_.instructions) {
                if (it.op == RowOp::carry) copy(input(it, 0), values_[it.bits]);
            }
        }
        run(row, false);
    }

private:
    using Index = std::int64_t;

    // Of a listed row, or of one of the results.
    void run(std::int64_t row, bool listed) {
        for (std::size_t i = 0; i < spec_.instructions.size(); ++i) {
            const RowInstruction& it = spec_.instructions[i];
            if (times_[i] == (listed ? RowTime::result : RowTime::listed)) continue;
            switch (it.op) {
                case RowOp::carried:
                case RowOp::carry:
                case RowOp::fetch: break;
                case RowOp::number: values_[i][0] = args_.list[entry_].number; break;
                case RowOp::factor: values_[i][0] = args_.factors[args_.list[entry_].factor]; break;
                case RowOp::last: copy(input(it, 0), values_[i]); break;
                case RowOp::load:
                    if (uses_[i] > 0) load(it, row, values_[i]);
                    break;
                case RowOp::first: values_[i][0] = first(it, row); break;
                case RowOp::constant: fill(values_[i], it.bits); break;
                case RowOp::columns: values_[i][0] = static_cast<float>(args_.columns); break;
                case RowOp::sum:
                case RowOp::sum_about:
                case RowOp::highest:
                case RowOp::lowest:
                    values_[i][0] = reduced(it.op, input(it, 0), input(it, 1), args_.columns);
                    break;
                case RowOp::gate: gate(it, row, values_[i]); break;
                case RowOp::add_chosen: add_chosen(it, row, values_[i]); break;
                case RowOp::store_bits: write_bits(it, row); break;
                case RowOp::store: write(it, row); break;
                case RowOp::add_to_column: add(it, row, joined_[i]); break;
                default: compute(it, values_[i]);
            }
        }
    }

    // A value along the row, whether there is one of it or one for each column.
    struct Input {
        const float* data = nullptr;
        std::int64_t step = 0;

        float operator[](std::int64_t column) const { return data[column * step]; }
    };

    Input input(const RowInstruction& it, std::size_t k) const {
        if (it.inputs[k] == kNoValue) return {};
        const auto i = static_cast<std::size_t>(it.inputs[k]);
        return {values_[i].data(), uniform_[i] ? 0 : 1};
    }

    // One loop for each operation, not a choice for each element.
    template <class Of>
    static void fill(std::vector<float>& to, const Of& of) {
        for (std::size_t i = 0; i < to.size(); ++i) to[i] = of(static_cast<Index>(i));
    }
    static void fill(std::vector<float>& to, std::uint32_t bits) {
        std::fill(to.begin(), to.end(), std::bit_cast<float>(bits));
    }
    static void copy(const Input& from, std::vector<float>& to) {
        fill(to, [&](Index i) { return from[i]; });
    }

    void compute(const RowInstruction& it, std::vector<float>& to) const {
        const Input a = input(it, 0), b = input(it, 1), c = input(it, 2), d = input(it, 3);
        const auto each = [&](const auto& of) { fill(to, of); };
        switch (it.op) {
            case RowOp::add: return each([&](Index i) { return a[i] + b[i]; });
            case RowOp::subtract: return each([&](Index i) { return a[i] - b[i]; });
            case RowOp::multiply: return each([&](Index i) { return a[i] * b[i]; });
            case RowOp::divide: return each([&](Index i) { return a[i] / b[i]; });
            case RowOp::smaller: return each([&](Index i) { return a[i] < b[i] ? a[i] : b[i]; });
            case RowOp::larger: return each([&](Index i) { return a[i] > b[i] ? a[i] : b[i]; });
            case RowOp::multiply_add:
                return each([&](Index i) { return std::fma(a[i], b[i], c[i]); });
            case RowOp::negate: return each([&](Index i) { return -a[i]; });
            case RowOp::absolute: return each([&](Index i) { return std::fabs(a[i]); });
            case RowOp::square_root: return each([&](Index i) { return std::sqrt(a[i]); });
            case RowOp::nearest: return each([&](Index i) { return std::nearbyint(a[i]); });
            case RowOp::exponential:
                return each([&](Index i) { return static_cast<float>(std::exp(double{a[i]})); });
            case RowOp::logarithm:
                return each([&](Index i) { return static_cast<float>(std::log(double{a[i]})); });
            case RowOp::activation:
                return each([&](Index i) {
                    return static_cast<float>(activated(static_cast<Activation>(it.detail), a[i]));
                });
            case RowOp::add_words:
                return each([&](Index i) { return of_word(word(a[i]) + word(b[i])); });
            case RowOp::low_product:
                return each([&](Index i) { return of_word(word(a[i]) * word(b[i])); });
            case RowOp::high_product:
                return each(
                    [&](Index i) { return of_word(std::uint64_t{word(a[i])} * word(b[i]) >> 32); });
            case RowOp::exclusive_or:
                return each([&](Index i) { return of_word(word(a[i]) ^ word(b[i]) ^ word(c[i])); });
            case RowOp::rare: {
                const auto function = static_cast<RareFunction>(it.detail);
                return each([&](Index i) {
                    return b[i] > rare_above(function) ? rare_value(function, a[i], d[i]) : c[i];
                });
            }
            case RowOp::rounded:
                return each([&](Index i) { return rounded_to(DType{it.detail}, a[i]); });
            default:
                each([&](Index i) {
                    return holds(static_cast<Comparison>(it.detail), a[i], b[i]) ? c[i] : d[i];
                });
        }
    }

    void gate(const RowInstruction& it, std::int64_t row, std::vector<float>& to) const {
        const char* const bits = data(it, row);
        const Input x = input(it, 0);
        fill(to, [&](Index i) { return bit_at(bits, i) ? x[i] : 0; });
    }

    void add_chosen(const RowInstruction& it, std::int64_t row, std::vector<float>& to) const {
        const auto* const bytes = reinterpret_cast<const std::uint8_t*>(data(it, row));
        const Input wanted = input(it, 0), x = input(it, 1), total = input(it, 2);
        fill(to, [&](Index i) {
            const bool chosen = bytes[i] == (word(wanted[i]) & 0xFF);
            return total[i] + (chosen ? x[i] : 0);
        });
    }

    char* data(const RowInstruction& it, std::int64_t row) const {
        const auto& [shape, dtype, written] = spec_.operands[it.detail];
        const RowArgs::Operand& operand = args_.operands.at(it.detail);
        const bool lasts = shape == RowShape::column || shape == RowShape::scalar;
        std::int64_t distance = 0;
        if (shape == RowShape::listed) {
            distance = listed_element() * size_of(dtype);
        } else if (!lasts) {
            distance = row * operand.stride;
        }
        return static_cast<char*>(operand.data) + distance + it.offset;
    }

    std::int64_t listed_element() const {
        if (!has_places(spec_)) return args_.list[entry_].element;
        const auto of = [&](auto place) {
            const auto* const first = static_cast<const char*>(args_.places);
            std::memcpy(&place, first + entry_ * spec_.place_bytes, sizeof(place));
            const bool is_row = place >= 0 && place < args_.extent;
            return is_row ? place * args_.distance : 0;
        };
        return spec_.place_bytes == 4 ? of(std::int32_t{}) : of(std::int64_t{});
    }

    void load(const RowInstruction& it, std::int64_t row, std::vector<float>& to) const {
        const DType dtype = spec_.operands[it.detail].dtype;
        const char* const from = data(it, row);
        fill(to, [&](Index i) { return element_at(dtype, from, i); });
    }

    float first(const RowInstruction& it, std::int64_t row) const {
        return args_.columns > 0 ? element_at(spec_.operands[it.detail].dtype, data(it, row), 0)
                                 : 0;
    }

    void write_bits(const RowInstruction& it, std::int64_t row) const {
        auto* const to = reinterpret_cast<std::uint8_t*>(data(it, row));
        const Input x = input(it, 0);
        for (std::int64_t column = 0; column < args_.columns; ++column) {
            if (column % 8 == 0) to[column / 8] = 0;
            const int bit = x[column] <= 0 ? 0 : 1;
            to[column / 8] = static_cast<std::uint8_t>(to[column / 8] | bit << column % 8);
        }
    }

    static bool bit_at(const char* row, std::int64_t column) {
        return (static_cast<std::uint8_t>(row[column / 8]) >> column % 8 & 1) != 0;
    }

    void write(const RowInstruction& it, std::int64_t row) const {
        const RowOperand& operand = spec_.operands[it.detail];
        void* const to = data(it, row);
        const Input x = input(it, 0);
        const bool is_exact = exact_[static_cast<std::size_t>(it.inputs[0])];
        const std::int64_t count = operand.shape == RowShape::row ? 1 : args_.columns;
        for (std::int64_t column = 0; column < count; ++column) {
            if (operand.dtype == DType::bf16 && is_exact) {
                static_cast<std::uint16_t*>(to)[column] =
                    static_cast<std::uint16_t>(word(x[column]) >> 16);
            } else {
                set_element(operand.dtype, to, column, x[column]);
            }
        }
    }

    void add(const RowInstruction& it, std::int64_t row, std::int16_t product) const {
        auto* const to = reinterpret_cast<float*>(data(it, row));
        if (product == kNoValue) {
            const Input x = input(it, 0);
            for (std::int64_t column = 0; column < args_.columns; ++column) to[column] += x[column];
            return;
        }
        const RowInstruction& factors = spec_.instructions[static_cast<std::size_t>(product)];
        const Input a = input(factors, 0), b = input(factors, 1);
        for (std::int64_t column = 0; column < args_.columns; ++column) {
            to[column] = std::fma(a[column], b[column], to[column]);
        }
    }

    const RowSpec& spec_;
    const RowArgs& args_;
    std::int64_t entry_ = 0;  // of the list
    std::vector<bool> uniform_;
    std::vector<std::int16_t> joined_;
    std::vector<RowTime> times_;
    std::vector<bool> exact_;
    std::vector<int> uses_;
    std::vector<std::vector<float>> values_;  // of each instruction: a row, or one
};

}  // namespace

void reference_rows(const RowSpec& spec, const RowArgs& args) {
    Interpreter interpreter(spec, args);
    for (std::int64_t row = 0; row < args.rows; ++row) interpreter.run(row);
}

}  // namespace dlprim
