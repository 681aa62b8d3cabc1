#include "graph/map_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>

#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

constexpr std::int64_t kBlock = 64;  // elements
constexpr std::size_t kMostOperations = 64;
constexpr double kMostExact = 9007199254740992;  // 2^53: of integers that are given as doubles
constexpr std::int64_t kTaskElements = 16 * 1024;

// An integer, or the bits of a double; which of them is known for each operation.
union Element {
    std::int64_t whole;
    double real;
};
using Block = std::array<Element, kBlock>;
// Makes a block of up to three others.
using Compute = void (*)(const Block* const* in, std::int64_t count, Block& out);
// Reads elements that stand so many bytes apart; writes elements in a row.
using Load = void (*)(const char* from, std::int64_t stride, std::int64_t count, Block& to);
using Store = void (*)(const Block& from, std::int64_t count, char* to);

struct Type {
    bool is_real = false;
    Load load = nullptr;
    Store store = nullptr;
    Compute cut = nullptr;  // what an operation has made, to the type's bits
};

template <class T>
Type type_of() {
    constexpr bool kReal = std::is_floating_point_v<T>;
    return {
        .is_real = kReal,
        .load =
            [](const char* from, std::int64_t stride, std::int64_t count, Block& to) {
                for (std::int64_t i = 0; i < count; ++i) {
                    T value;
                    std::memcpy(&value, from + i * stride, sizeof(T));
                    if constexpr (kReal) {
                        to[static_cast<std::size_t>(i)].real = static_cast<double>(value);
                    } else {
                        to[static_cast<std::size_t>(i)].whole = value;
                    }
                }
            },
        .store =
            [](const Block& from, std::int64_t count, char* to) {
                for (std::int64_t i = 0; i < count; ++i) {
                    const Element& it = from[static_cast<std::size_t>(i)];
                    T value;
                    if constexpr (kReal) {
                        value = static_cast<T>(it.real);
                    } else {
                        value = static_cast<T>(it.whole);
                    }
                    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
                }
            },
        .cut =
            [](const Block* const* in, std::int64_t count, Block& out) {
                for (std::int64_t i = 0; i < count; ++i) {
                    const auto place = static_cast<std::size_t>(i);
                    if constexpr (kReal) {
                        out[place].real = static_cast<double>(static_cast<T>((*in[0])[place].real));
                    } else if constexpr (std::is_same_v<T, bool>) {
                        out[place].whole = (*in[0])[place].whole & 1;
                    } else {
                        out[place].whole = static_cast<T>((*in[0])[place].whole);
                    }
                }
            }};
}

const std::map<std::string, Type>& types() {
    static const std::map<std::string, Type> found{
        {"bool", type_of<bool>()},
        {"int8", type_of<std::int8_t>()},
        {"int16", type_of<std::int16_t>()},
        {"int32", type_of<std::int32_t>()},
        {"int64", type_of<std::int64_t>()},
        {"uint8", type_of<std::uint8_t>()},
        {"uint16", type_of<std::uint16_t>()},
        {"uint32", type_of<std::uint32_t>()},
        {"float32", type_of<float>()},
        {"float64", type_of<double>()},
    };
    return found;
}

template <auto kEach>
void each(const Block* const* in, std::int64_t count, Block& out) {
    for (std::int64_t i = 0; i < count; ++i) {
        const auto at = [&](int operand) { return (*in[operand])[static_cast<std::size_t>(i)]; };
        out[static_cast<std::size_t>(i)] = kEach(at);
    }
}

// Sums and products may leave 64 bits, as unsigned numbers do.
template <template <class> class Operation>
void whole(const Block* const* in, std::int64_t count, Block& out) {
    each<[](const auto& at) {
        const auto value = Operation<std::uint64_t>()(static_cast<std::uint64_t>(at(0).whole),
                                                      static_cast<std::uint64_t>(at(1).whole));
        return Element{.whole = static_cast<std::int64_t>(value)};
    }>(in, count, out);
}

template <template <class> class Operation>
void compared(const Block* const* in, std::int64_t count, Block& out) {
    each<[](const auto& at) {
        return Element{.whole = Operation<std::int64_t>()(at(0).whole, at(1).whole) ? 1 : 0};
    }>(in, count, out);
}

template <template <class> class Operation>
void compared_reals(const Block* const* in, std::int64_t count, Block& out) {
    each<[](const auto& at) {
        return Element{.whole = Operation<double>()(at(0).real, at(1).real) ? 1 : 0};
    }>(in, count, out);
}

// Of integers, and of floats where there is one.
struct Function {
    std::size_t operands = 2;
    Compute wholes = nullptr;
    Compute reals = nullptr;
};

constexpr auto kTrue = [](bool it) { return Element{.whole = it ? 1 : 0}; };

const std::map<std::string, Function>& functions() {
    static const std::map<std::string, Function> found{
        {"add", {.wholes = &whole<std::plus>}},
        {"subtract", {.wholes = &whole<std::minus>}},
        {"multiply", {.wholes = &whole<std::multiplies>}},
        {"bitwise_and", {.wholes = &whole<std::bit_and>}},
        {"bitwise_or", {.wholes = &whole<std::bit_or>}},
        {"bitwise_xor", {.wholes = &whole<std::bit_xor>}},
        {"equal", {.wholes = &compared<std::equal_to>, .reals = &compared_reals<std::equal_to>}},
        {"not_equal",
         {.wholes = &compared<std::not_equal_to>, .reals = &compared_reals<std::not_equal_to>}},
        {"less", {.wholes = &compared<std::less>, .reals = &compared_reals<std::less>}},
        {"less_equal",
         {.wholes = &compared<std::less_equal>, .reals = &compared_reals<std::less_equal>}},
        {"greater", {.wholes = &compared<std::greater>, .reals = &compared_reals<std::greater>}},
        {"greater_equal",
         {.wholes = &compared<std::greater_equal>, .reals = &compared_reals<std::greater_equal>}},
        {"maximum", {.wholes = &each<[](const auto& at) {
                         return Element{.whole = std::max(at(0).whole, at(1).whole)};
                     }>}},
        {"minimum", {.wholes = &each<[](const auto& at) {
                         return Element{.whole = std::min(at(0).whole, at(1).whole)};
                     }>}},
        // Of conditions: whether they are true is made of others by `cast`.
        {"and", {.wholes = &whole<std::bit_and>}},
        {"or", {.wholes = &whole<std::bit_or>}},
        {"xor", {.wholes = &whole<std::bit_xor>}},
        {"not",
         {.operands = 1, .wholes = &each<[](const auto& at) { return kTrue(at(0).whole == 0); }>}},
        {"bitwise_not",
         {.operands = 1,
          .wholes = &each<[](const auto& at) { return Element{.whole = ~at(0).whole}; }>}},
        {"where",
         {.operands = 3,
          .wholes = &each<[](const auto& at) { return at(0).whole != 0 ? at(1) : at(2); }>,
          .reals = &each<[](const auto& at) { return at(0).whole != 0 ? at(1) : at(2); }>}},
    };
    return found;
}

// From integers or floats to a type, before it is cut to it.
Compute conversion(bool from_real, const std::string& to, bool to_real) {
    if (to == "bool") {
        if (from_real) return &each<[](const auto& at) { return kTrue(at(0).real != 0); }>;
        return &each<[](const auto& at) { return kTrue(at(0).whole != 0); }>;
    }
    if (from_real == to_real) return &each<[](const auto& at) { return at(0); }>;
    if (from_real) return nullptr;
    if (to == "float32") {  // rounded once
        return &each<[](const auto& at) {
            return Element{.real = static_cast<double>(static_cast<float>(at(0).whole))};
        }>;
    }
    return &each<[](const auto& at) { return Element{.real = static_cast<double>(at(0).whole)}; }>;
}

struct Instruction {
    Compute compute = nullptr;  // none of a number or an input
    Compute cut = nullptr;
    Load load = nullptr;
    std::vector<int> operands = {};
    Element number = {.whole = 0};
};

struct Mapping {
    std::vector<Instruction> instructions = {};
    std::vector<int> values = {};
    std::vector<std::vector<std::int64_t>> strides = {};  // bytes
    std::vector<std::int64_t> shape = {};                 // at least one extent
    Store store = nullptr;
    int dst = -1;
    std::int64_t element = 0;

    // Where an operand's row begins.
    std::int64_t offset(std::size_t operand, std::int64_t row) const {
        std::int64_t bytes = 0;
        for (std::size_t axis = shape.size() - 1; axis-- > 0;) {
            bytes += row % shape[axis] * strides[operand][axis];
            row /= shape[axis];
        }
        return bytes;
    }

    void run_block(const Addresses& at, std::int64_t row, const Range& columns) const {
        std::array<Block, kMostOperations> made;
        const std::int64_t count = columns.size();
        for (std::size_t i = 0; i < instructions.size(); ++i) {
            const Instruction& it = instructions[i];
            if (it.load != nullptr) {
                const auto operand = static_cast<std::size_t>(it.operands[0]);
                const std::int64_t stride = strides[operand].back();
                const char* const from = at[values[operand]];
                it.load(from + offset(operand, row) + columns.begin * stride, stride, count,
                        made[i]);
                continue;
            }
            if (it.compute == nullptr) {
                std::fill_n(made[i].begin(), count, it.number);
                continue;
            }
            std::array<const Block*, 3> in{};
            for (std::size_t k = 0; k < it.operands.size(); ++k) {
                in[k] = &made[static_cast<std::size_t>(it.operands[k])];
            }
            it.compute(in.data(), count, made[i]);
            in[0] = &made[i];
            it.cut(in.data(), count, made[i]);
        }
        char* const to = at[dst];
        store(made[instructions.size() - 1], count,
              to + (row * shape.back() + columns.begin) * element);
    }

    void run(const Addresses& at) const {
        std::int64_t rows = 1;
        for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) rows *= shape[axis];
        const Blocks columns{shape.back(), kBlock};
        const Blocks tasks{rows * columns.count(), kTaskElements / kBlock};
        parallel_for(tasks.count(), [&](std::int64_t task) {
            const Range range = tasks.at(task);
            for (std::int64_t i = range.begin; i < range.end; ++i) {
                run_block(at, i / columns.count(), columns.at(i % columns.count()));
            }
        });
    }
};

[[noreturn]] void refuse_map(const std::string& sentence) {
    throw std::invalid_argument("a map " + sentence);
}

const Type& type_named(const std::string& dtype) {
    const auto found = types().find(dtype);
    if (found == types().end()) refuse_map("has no operations on " + dtype);
    return found->second;
}

Compute compute_of(const MapOperation& it, const std::vector<MapOperation>& before) {
    const auto is_real = [&](int number) {
        return type_named(before[static_cast<std::size_t>(number)].dtype).is_real;
    };
    const bool to_real = type_named(it.dtype).is_real;
    const auto found = functions().find(it.function);
    const bool is_cast = it.function == "cast";
    if ((!is_cast && found == functions().end()) ||
        it.operands.size() != (is_cast ? 1 : found->second.operands)) {
        refuse_map("has no function " + it.function + " of " + std::to_string(it.operands.size()) +
                   " operands");
    }
    if (is_cast) {
        const Compute made = conversion(is_real(it.operands[0]), it.dtype, to_real);
        if (made == nullptr) refuse_map("does not turn floats into " + it.dtype);
        return made;
    }
    const bool has_reals = is_real(it.operands.back());
    const bool is_alike = it.function == "where"
                              ? !is_real(it.operands[0]) && is_real(it.operands[1]) == has_reals &&
                                    has_reals == to_real
                              : is_real(it.operands[0]) == has_reals && !to_real;
    const Compute made = has_reals ? found->second.reals : found->second.wholes;
    if (!is_alike || made == nullptr) {
        refuse_map("has no " + it.function + " of these types to " + it.dtype);
    }
    return made;
}

std::vector<Instruction> instructions_of(const Network& network,
                                         const std::vector<MapOperation>& operations,
                                         const MappedValues& values) {
    if (operations.empty() || operations.size() > kMostOperations) {
        refuse_map("has " + std::to_string(operations.size()) + " operations, expected 1 to " +
                   std::to_string(kMostOperations));
    }
    std::vector<Instruction> made;
    for (const MapOperation& it : operations) {
        const bool is_input = it.function == "input";
        const auto limit = static_cast<int>(is_input ? values.operands.size() : made.size());
        const bool is_known = std::all_of(it.operands.begin(), it.operands.end(), [&](int operand) {
            return operand >= 0 && operand < limit;
        });
        if (!is_known || (is_input && it.operands.size() != 1)) {
            refuse_map("has operands of " + it.function + " that are not there");
        }
        const Type& type = type_named(it.dtype);
        Instruction next{.cut = type.cut, .operands = it.operands};
        if (is_input) {
            const auto operand = static_cast<std::size_t>(it.operands[0]);
            if (network.tensor(values.operands[operand]).dtype != it.dtype) {
                refuse_map("reads " + network.tensor(values.operands[operand]).described() +
                           " as " + it.dtype);
            }
            next.load = type.load;
        } else if (it.function != "number") {
            next.compute = compute_of(it, operations);
        } else if (type.is_real) {
            next.number.real = it.dtype == "float32" ? static_cast<float>(it.number) : it.number;
        } else if (!(std::abs(it.number) <= kMostExact)) {
            refuse_map("has the number " + std::to_string(it.number) + " of type " + it.dtype +
                       ", expected at most 2^53");
        } else {
            next.number.whole = static_cast<std::int64_t>(it.number);
        }
        made.push_back(std::move(next));
    }
    return made;
}

}  // namespace

NetworkStep map_step(const Network& network, const std::vector<MapOperation>& operations,
                     const MappedValues& values, std::string label) {
    const NetworkTensor& dst = network.tensor(values.dst);
    Mapping it{.instructions = instructions_of(network, operations, values),
               .values = values.operands,
               .shape = dst.shape,
               .store = type_named(dst.dtype).store,
               .dst = values.dst,
               .element = dst.element};
    if (!dst.is_dense() || operations.back().dtype != dst.dtype) {
        refuse_map("makes " + operations.back().dtype + " in C order, expected " + dst.described());
    }
    if (it.shape.empty()) it.shape.push_back(1);
    for (const int operand : values.operands) {
        const NetworkTensor& tensor = network.tensor(operand);
        if (tensor.shape != dst.shape) {
            refuse_map("is of arrays of one shape: " + tensor.described() + " to " +
                       dst.described());
        }
        it.strides.push_back(tensor.strides);
        if (tensor.strides.empty()) it.strides.back().push_back(0);
    }
    NetworkStep step{
        .kind = "map", .label = std::move(label), .reads = values.operands, .writes = {values.dst}};
    step.run = [it = std::move(it)](const Addresses& at) { it.run(at); };
    return step;
}

}  // namespace dlprim
