#include "rows/row_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "jit/activation.h"
#include "jit/element_reference.h"

namespace dlprim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool holds(Comparison comparison, float a, float b) {
    switch (comparison) {
        case Comparison::less: return a < b;
        case Comparison::less_equal: return a <= b;
        case Comparison::equal: return a == b;
        default: return std::isnan(a) || std::isnan(b);
    }
}

// Of one element; x are its inputs.
float computed(const RowInstruction& it, const std::array<float, 4>& x) {
    switch (it.op) {
        case RowOp::constant: return std::bit_cast<float>(it.bits);
        case RowOp::add: return x[0] + x[1];
        case RowOp::subtract: return x[0] - x[1];
        case RowOp::multiply: return x[0] * x[1];
        case RowOp::divide: return x[0] / x[1];
        case RowOp::smaller: return x[0] < x[1] ? x[0] : x[1];
        case RowOp::larger: return x[0] > x[1] ? x[0] : x[1];
        case RowOp::multiply_add: return std::fma(x[0], x[1], x[2]);
        case RowOp::negate: return -x[0];
        case RowOp::absolute: return std::fabs(x[0]);
        case RowOp::square_root: return std::sqrt(x[0]);
        case RowOp::exponential: return static_cast<float>(std::exp(double{x[0]}));
        case RowOp::logarithm: return static_cast<float>(std::log(double{x[0]}));
        case RowOp::activation:
            return static_cast<float>(activated(static_cast<Activation>(it.detail), x[0]));
        case RowOp::rounded: {
            std::uint16_t stored = 0;
            set_element(DType::bf16, &stored, 0, x[0]);
            return element_at(DType::bf16, &stored, 0);
        }
        case RowOp::select:
            return holds(static_cast<Comparison>(it.detail), x[0], x[1]) ? x[2] : x[3];
        default: return 0;
    }
}

float reduced(RowOp op, const std::vector<float>& values, std::int64_t columns) {
    const auto end = values.begin() + columns;
    if (op == RowOp::sum) {
        double total = 0;
        for (auto value = values.begin(); value != end; ++value) total += *value;
        return static_cast<float>(total);
    }
    float best = op == RowOp::highest ? -kInfinity : kInfinity;
    for (auto value = values.begin(); value != end; ++value) {
        const bool better = op == RowOp::highest ? *value > best : *value < best;
        if (better) best = *value;
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
          exact_(exact_values(spec)) {
        for (const bool uniform : uniform_) {
            values_.emplace_back(uniform ? 1 : static_cast<std::size_t>(args.columns));
        }
    }

    void run(std::int64_t row) {
        for (std::size_t i = 0; i < spec_.instructions.size(); ++i) {
            const RowInstruction& it = spec_.instructions[i];
            const auto count = static_cast<std::int64_t>(values_[i].size());
            switch (it.op) {
                case RowOp::load: load(it, row, values_[i]); break;
                case RowOp::columns: values_[i][0] = static_cast<float>(args_.columns); break;
                case RowOp::sum:
                case RowOp::highest:
                case RowOp::lowest:
                    values_[i][0] = reduced(it.op, whole_row(it.inputs[0]), args_.columns);
                    break;
                case RowOp::gate:
                    for (std::int64_t column = 0; column < count; ++column) {
                        const bool set = bit_at(data(it.detail, row), column);
                        values_[i][static_cast<std::size_t>(column)] =
                            set ? value(it.inputs[0], column) : 0;
                    }
                    break;
                case RowOp::store_bits: write_bits(it, row); break;
                case RowOp::store:
                case RowOp::add_to_column: write(it, row, joined_[i]); break;
                default:
                    for (std::int64_t column = 0; column < count; ++column) {
                        values_[i][static_cast<std::size_t>(column)] =
                            computed(it, inputs(it, column));
                    }
            }
        }
    }

private:
    float value(std::int16_t index, std::int64_t column) const {
        const auto i = static_cast<std::size_t>(index);
        return values_[i][uniform_[i] ? 0 : static_cast<std::size_t>(column)];
    }

    std::array<float, 4> inputs(const RowInstruction& it, std::int64_t column) const {
        std::array<float, 4> found{};
        for (std::size_t k = 0; k < found.size(); ++k) {
            if (it.inputs[k] != kNoValue) found[k] = value(it.inputs[k], column);
        }
        return found;
    }

    std::vector<float> whole_row(std::int16_t index) const {
        std::vector<float> all;
        for (std::int64_t column = 0; column < args_.columns; ++column) {
            all.push_back(value(index, column));
        }
        return all;
    }

    char* data(std::uint8_t operand, std::int64_t row) const {
        const RowShape shape = spec_.operands[operand].shape;
        const bool moves = shape != RowShape::column && shape != RowShape::scalar;
        const RowArgs::Operand& it = args_.operands.at(operand);
        return static_cast<char*>(it.data) + (moves ? row * it.stride : 0);
    }

    void load(const RowInstruction& it, std::int64_t row, std::vector<float>& to) const {
        for (std::size_t column = 0; column < to.size(); ++column) {
            to[column] = element_at(spec_.operands[it.detail].dtype, data(it.detail, row),
                                    static_cast<std::int64_t>(column));
        }
    }

    void write_bits(const RowInstruction& it, std::int64_t row) const {
        auto* const to = reinterpret_cast<std::uint8_t*>(data(it.detail, row));
        for (std::int64_t column = 0; column < args_.columns; ++column) {
            if (column % 8 == 0) to[column / 8] = 0;
            const bool set = !(value(it.inputs[0], column) <= 0);
            to[column / 8] =
                static_cast<std::uint8_t>(to[column / 8] | (set ? 1 : 0) << column % 8);
        }
    }

    static bool bit_at(const char* row, std::int64_t column) {
        return (static_cast<std::uint8_t>(row[column / 8]) >> column % 8 & 1) != 0;
    }

    void write(const RowInstruction& it, std::int64_t row, std::int16_t product) const {
        const RowOperand& operand = spec_.operands[it.detail];
        void* const to = data(it.detail, row);
        const std::int64_t count = operand.shape == RowShape::row ? 1 : args_.columns;
        for (std::int64_t column = 0; column < count; ++column) {
            const float before =
                it.op == RowOp::add_to_column ? static_cast<const float*>(to)[column] : 0;
            float result = value(it.inputs[0], column);
            if (product != kNoValue) {
                const auto& factors = spec_.instructions[static_cast<std::size_t>(product)].inputs;
                result = std::fma(value(factors[0], column), value(factors[1], column), before);
            } else if (it.op == RowOp::add_to_column) {
                result += before;
            }
            const bool is_exact =
                it.op == RowOp::store && exact_[static_cast<std::size_t>(it.inputs[0])];
            if (operand.dtype == DType::bf16 && is_exact) {
                static_cast<std::uint16_t*>(to)[column] =
                    static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(result) >> 16);
            } else {
                set_element(operand.dtype, to, column, result);
            }
        }
    }

    const RowSpec& spec_;
    const RowArgs& args_;
    std::vector<bool> uniform_;
    std::vector<std::int16_t> joined_;
    std::vector<bool> exact_;
    std::vector<std::vector<float>> values_;  // of each instruction: a row, or one
};

}  // namespace

void reference_rows(const RowSpec& spec, const RowArgs& args) {
    Interpreter interpreter(spec, args);
    for (std::int64_t row = 0; row < args.rows; ++row) interpreter.run(row);
}

}  // namespace dlprim
