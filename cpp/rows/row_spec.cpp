#include "rows/row_spec.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "jit/activation.h"
#include "rows/functions/rare_function.h"

namespace dlprim {
namespace {

bool is_listed_operand(const RowOperand& it) { return it.shape == RowShape::listed; }

void require_at_most(std::int64_t most, std::int64_t count, const std::string& operands) {
    if (count <= most) return;
    throw std::invalid_argument("a row program has " + std::to_string(count) + " " + operands +
                                ", expected at most " + std::to_string(most));
}

[[noreturn]] void refuse(std::size_t instruction, const std::string& why) {
    throw std::invalid_argument("instruction " + std::to_string(instruction) +
                                " of a row program " + why);
}

void validate_inputs(const RowSpec& spec, std::size_t index) {
    const RowInstruction& it = spec.instructions[index];
    const auto count = static_cast<std::size_t>(inputs_of(it.op));
    for (std::size_t i = 0; i < it.inputs.size(); ++i) {
        const int input = it.inputs[i];
        if (i >= count) {
            if (input != kNoValue) refuse(index, "has an input too many");
            continue;
        }
        if (input < 0 || input >= static_cast<int>(index)) {
            refuse(index, "takes an input that is not there yet");
        }
        if (!has_result(spec.instructions[static_cast<std::size_t>(input)].op)) {
            refuse(index, "takes an input that has no value");
        }
    }
}

bool is_single_value(RowShape shape) { return shape == RowShape::row || shape == RowShape::scalar; }

bool names_operand(RowOp op) {
    return op == RowOp::load || op == RowOp::first || op == RowOp::store ||
           op == RowOp::add_to_column || op == RowOp::gate || op == RowOp::store_bits ||
           op == RowOp::fetch || op == RowOp::add_chosen;
}

void validate_access(const RowSpec& spec, std::size_t index, const std::vector<bool>& uniform) {
    const RowInstruction& it = spec.instructions[index];
    const RowOperand& operand = spec.operands[it.detail];
    if (operand.dtype == DType::s32) refuse(index, "has an int32 operand: arithmetic is float32");
    if (is_single_value(operand.shape) && operand.dtype != DType::f32) {
        refuse(index, "has single values that are not float32");
    }
    const bool of_bits = it.op == RowOp::gate || it.op == RowOp::store_bits;
    if (of_bits != (operand.shape == RowShape::bits)) refuse(index, "takes numbers for bits");
    if (it.op == RowOp::fetch && operand.shape != RowShape::tensor) {
        refuse(index, "fetches what is no tensor");
    }
    if (it.op == RowOp::first && operand.shape != RowShape::tensor) {
        refuse(index, "takes the first element of what is no tensor");
    }
    if (it.op == RowOp::add_chosen && operand.dtype != DType::u8) {
        refuse(index, "chooses by what are no bytes");
    }
    if (has_result(it.op) || it.op == RowOp::fetch) return;
    if (!operand.written) refuse(index, "writes an operand that is for reading");
    if (it.op == RowOp::add_to_column) {
        if (operand.shape != RowShape::column || operand.dtype != DType::f32) {
            refuse(index, "adds to an operand that is no float32 column");
        }
        return;
    }
    if (of_bits) return;
    const bool is_uniform = uniform[static_cast<std::size_t>(it.inputs[0])];
    if (operand.shape != RowShape::tensor && operand.shape != RowShape::row) {
        refuse(index, "stores what differs from row to row into one place");
    }
    if (operand.shape == RowShape::row && !is_uniform) {
        refuse(index, "stores elements where a row has a single value");
    }
}

bool goes_with_list(RowOp op) {
    return has_listed_number(op) || op == RowOp::carried || op == RowOp::carry || op == RowOp::last;
}

// By what it is, whatever its inputs are.
RowTime own_time(const RowSpec& spec, const RowInstruction& it) {
    if (it.op == RowOp::last) return RowTime::result;
    if (goes_with_list(it.op)) return RowTime::listed;
    if (!names_operand(it.op)) return RowTime::any;
    const RowShape shape = spec.operands[it.detail].shape;
    if (shape == RowShape::listed) return RowTime::listed;
    const bool lasts = shape == RowShape::column || shape == RowShape::scalar;
    return lasts && it.op == RowOp::load ? RowTime::any : RowTime::result;
}

void validate_carrying(const RowSpec& spec, std::size_t index) {
    const RowInstruction& it = spec.instructions[index];
    if (!goes_with_list(it.op)) return;
    const auto is_carried = [&](std::size_t i) {
        return i < index && spec.instructions[i].op == RowOp::carried;
    };
    const bool of_carried = is_carried(static_cast<std::size_t>(it.inputs[0]));
    if (!is_listed(spec)) refuse(index, "has no list to carry along");
    if (has_listed_number(it.op) && has_places(spec)) {
        refuse(index, "asks a list of places for a number");
    }
    if (it.op == RowOp::last && !of_carried) refuse(index, "asks for the last of something else");
    if (it.op == RowOp::carry && (of_carried || !is_carried(it.bits))) {
        refuse(index, "carries nothing new");
    }
}

void validate_detail(const RowSpec& spec, std::size_t index) {
    const auto& [op, inputs, detail, bits, offset] = spec.instructions[index];
    if (op == RowOp::rounded && DType{detail} != DType::bf16 && DType{detail} != DType::f16) {
        refuse(index, "rounds to another type than bfloat16 and float16");
    }
    if (op == RowOp::activation && detail >= kActivationNames.size())
        refuse(index, "names no activation");
    if (op == RowOp::rare && detail >= kRareFunctions) refuse(index, "names no rare function");
    if (op == RowOp::select && Comparison{detail} > Comparison::words_at_least)
        refuse(index, "names no comparison");
    if (is_reduction(op) && is_listed(spec)) {
        refuse(index, "goes along a row of a program with a list");
    }
    if (op == RowOp::keep || op == RowOp::reload) refuse(index, "is for plans alone");
}

// Where its inputs are as `exact` says.
bool is_exact(const RowSpec& spec, const RowInstruction& it, const std::vector<bool>& exact) {
    const auto input = [&](std::size_t i) { return exact[static_cast<std::size_t>(it.inputs[i])]; };
    switch (it.op) {
        case RowOp::load:
        case RowOp::first: return fits_bf16(spec.operands[it.detail].dtype) && it.bits == 0;
        case RowOp::constant:
        case RowOp::carried: return (it.bits & 0xFFFF) == 0;
        case RowOp::rounded: return DType{it.detail} == DType::bf16;
        case RowOp::carry:
        case RowOp::last:
        case RowOp::gate:
        case RowOp::negate:
        case RowOp::absolute: return input(0);
        case RowOp::smaller:
        case RowOp::larger: return input(0) && input(1);
        case RowOp::select: return input(2) && input(3);
        default: return false;
    }
}

}  // namespace

int inputs_of(RowOp op) {
    switch (op) {
        case RowOp::load:
        case RowOp::constant:
        case RowOp::columns:
        case RowOp::first:
        case RowOp::fetch:
        case RowOp::number:
        case RowOp::factor:
        case RowOp::carried:
        case RowOp::reload: return 0;
        case RowOp::add:
        case RowOp::subtract:
        case RowOp::multiply:
        case RowOp::divide:
        case RowOp::sum_about:
        case RowOp::smaller:
        case RowOp::larger:
        case RowOp::add_words:
        case RowOp::low_product:
        case RowOp::high_product: return 2;
        case RowOp::multiply_add:
        case RowOp::exclusive_or:
        case RowOp::add_chosen: return 3;
        case RowOp::rare:
        case RowOp::select: return 4;
        default: return 1;
    }
}

bool is_listed(const RowSpec& spec) {
    return std::any_of(spec.operands.begin(), spec.operands.end(), is_listed_operand);
}

void validate(const RowSpec& spec) {
    require_at_most(kMostRowOperands, std::ssize(spec.operands), "operands");
    for (std::size_t i = 0; i < spec.instructions.size(); ++i) {
        validate_inputs(spec, i);
        const RowInstruction& it = spec.instructions[i];
        if (names_operand(it.op) && it.detail >= spec.operands.size()) {
            refuse(i, "names an operand that is not there");
        }
    }
    require_at_most(kMostListedOperands,
                    std::count_if(spec.operands.begin(), spec.operands.end(), is_listed_operand),
                    "listed operands");
    const bool has_size = spec.place_bytes == 4 || spec.place_bytes == 8;
    if (has_places(spec) && !(has_size && is_listed(spec) && spec.ahead >= 0)) {
        throw std::invalid_argument("places of " + std::to_string(spec.place_bytes) +
                                    " bytes in a row program, expected 4 or 8, a listed operand "
                                    "and no fetch backwards");
    }
    times_of(spec);
    const std::vector<bool> uniform = uniform_values(spec);
    for (std::size_t i = 0; i < spec.instructions.size(); ++i) {
        const RowInstruction& it = spec.instructions[i];
        if (names_operand(it.op)) validate_access(spec, i, uniform);
        if (it.op == RowOp::sum_about && !uniform[static_cast<std::size_t>(it.inputs[1])]) {
            refuse(i, "sums about what differs along the row");
        }
        validate_carrying(spec, i);
        validate_detail(spec, i);
    }
}

std::vector<RowTime> times_of(const RowSpec& spec) {
    std::vector<RowTime> times;
    for (std::size_t i = 0; i < spec.instructions.size(); ++i) {
        const RowInstruction& it = spec.instructions[i];
        RowTime time = own_time(spec, it);
        it.for_inputs([&](std::size_t input) {
            if (it.op == RowOp::last || times[input] == RowTime::any) return;
            if (time == RowTime::any) time = times[input];
            if (times[input] != time) refuse(i, "has inputs of listed rows and of rows of results");
        });
        times.push_back(time);
    }
    return times;
}

std::vector<bool> uniform_values(const RowSpec& spec) {
    std::vector<bool> uniform;
    for (const RowInstruction& it : spec.instructions) {
        bool is_uniform = true;
        if (it.op == RowOp::gate || it.op == RowOp::carried || it.op == RowOp::add_chosen) {
            is_uniform = false;
        } else if (it.op == RowOp::load) {
            is_uniform = is_single_value(spec.operands.at(it.detail).shape);
        } else if (!is_reduction(it.op)) {
            it.for_inputs([&](std::size_t input) { is_uniform = is_uniform && uniform[input]; });
        }
        uniform.push_back(is_uniform);
    }
    return uniform;
}

std::vector<bool> exact_values(const RowSpec& spec) {
    // Until what is carried from one row to the next changes nothing any more.
    std::vector<bool> exact(spec.instructions.size(), true), before;
    while (before != exact) {
        before = exact;
        for (std::size_t i = 0; i < exact.size(); ++i) {
            const RowInstruction& it = spec.instructions[i];
            exact[i] = exact[i] && is_exact(spec, it, exact);
            if (it.op == RowOp::carry) exact[it.bits] = exact[it.bits] && exact[i];
        }
    }
    return exact;
}

std::vector<int> passes_of(const RowSpec& spec) {
    const std::vector<RowTime> times = times_of(spec);
    const bool listed = is_listed(spec);
    std::vector<int> passes;
    for (std::size_t i = 0; i < spec.instructions.size(); ++i) {
        int pass = listed && times[i] == RowTime::result ? 1 : 0;
        spec.instructions[i].for_inputs([&](std::size_t input) {
            const int behind = is_reduction(spec.instructions[input].op) ? 1 : 0;
            if (!listed || times[i] != RowTime::result)
                pass = std::max(pass, passes[input] + behind);
        });
        passes.push_back(pass);
    }
    return passes;
}

std::vector<int> uses_of(const RowSpec& spec) {
    std::vector<int> uses(spec.instructions.size(), 0);
    for (const RowInstruction& it : spec.instructions)
        it.for_inputs([&](std::size_t input) { ++uses[input]; });
    return uses;
}

std::vector<std::int16_t> joined_products(const RowSpec& spec) {
    const std::vector<bool> uniform = uniform_values(spec);
    const std::vector<int> uses = uses_of(spec);
    std::vector<std::int16_t> joined;
    for (const RowInstruction& it : spec.instructions) {
        joined.push_back(kNoValue);
        if (it.op != RowOp::sum && it.op != RowOp::add_to_column) continue;
        const auto product = static_cast<std::size_t>(it.inputs[0]);
        const bool joins = spec.instructions[product].op == RowOp::multiply && uses[product] == 1 &&
                           !uniform[product];
        if (joins) joined.back() = it.inputs[0];
    }
    return joined;
}

bool has_polynomial(const RowInstruction& it) {
    if (it.op == RowOp::activation) return activation_registers(Activation{it.detail}) > 1;
    return it.op == RowOp::exponential || it.op == RowOp::logarithm;
}

std::string to_string(const RowSpec& spec) {
    std::array<char, 16> digits{};
    const auto end = std::to_chars(digits.begin(), digits.end(), std::hash<RowSpec>{}(spec), 16);
    return std::to_string(spec.operands.size()) + "x" + std::to_string(spec.instructions.size()) +
           "_" + std::string(digits.begin(), end.ptr);
}

}  // namespace dlprim

std::size_t std::hash<dlprim::RowSpec>::operator()(const dlprim::RowSpec& spec) const noexcept {
    // FNV-1a.
    std::uint64_t mixed = 0xcbf29ce484222325U;
    const auto mix = [&](auto value) {
        mixed = (mixed ^ static_cast<std::uint64_t>(value)) * 0x100000001b3U;
    };
    for (const dlprim::RowOperand& operand : spec.operands) {
        mix(operand.shape);
        mix(operand.dtype);
        mix(operand.written);
    }
    for (const dlprim::RowInstruction& it : spec.instructions) {
        mix(it.op);
        for (const std::int16_t input : it.inputs) mix(static_cast<std::uint16_t>(input));
        mix(it.detail);
        for (const auto value : {it.bits, static_cast<std::uint32_t>(it.offset)}) mix(value);
    }
    for (const auto value : {spec.ahead, spec.place_bytes, spec.most_vectors}) mix(value);
    return static_cast<std::size_t>(mixed);
}
