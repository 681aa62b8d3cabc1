#include "graph/elements/map_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "graph/elements/element.h"
#include "graph/elements/map_functions.h"
#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

constexpr std::int64_t kBlockBytes = 8192;  // of the widest elements
constexpr std::size_t kMostOperations = 64;
constexpr std::size_t kMostOperands = 3;         // of an operation
constexpr double kMostExact = 9007199254740992;  // 2^53: of integers that are given as doubles
constexpr std::int64_t kTaskElements = 32 * 1024;

// Elements that stand some bytes apart, in a row.
using Load = void (*)(const char* from, std::int64_t stride, std::int64_t count, char* to);

template <class Word>
void load_words(const char* from, std::int64_t stride, std::int64_t count, char* to) {
    Word first;
    std::memcpy(&first, from, sizeof first);
    if (stride == 0) {
        std::fill_n(reinterpret_cast<Word*>(to), count, first);
        return;
    }
    constexpr auto kWord = static_cast<std::int64_t>(sizeof(Word));
    if (stride == kWord) {
        std::memcpy(to, from, static_cast<std::size_t>(count * kWord));
        return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(to + i * kWord, from + i * stride, sizeof(Word));
    }
}

Load load_of(std::int64_t element) {
    switch (element) {
        case 1: return &load_words<std::uint8_t>;
        case 2: return &load_words<std::uint16_t>;
        case 4: return &load_words<std::uint32_t>;
        default: return &load_words<std::uint64_t>;
    }
}

struct Operand {
    int value = -1;
    bool is_dense = false;
    std::vector<std::int64_t> strides = {};  // bytes
    std::int64_t element = 0;

    // One row for all rows.
    bool is_row() const {
        return !is_dense && std::all_of(strides.begin(), strides.end() - 1,
                                        [](std::int64_t stride) { return stride == 0; });
    }
};

struct Instruction {
    MapCompute compute = nullptr;  // none of a number or an input
    std::vector<int> operands = {};
    int slot = -1;         // of scratch; -1 where an input is read where it lies
    bool is_kept = false;  // one block for all blocks of a task: a number, or rows that are alike
    std::string dtype = {};
    double number = 0;
};

struct Mapping {
    std::vector<Instruction> instructions = {};
    std::vector<Operand> operands = {};
    std::vector<std::int64_t> shape = {};  // at least one extent
    int slots = 0;
    std::int64_t block = 1;  // elements
    int dst = -1;
    std::int64_t element = 0;
    std::shared_ptr<WorkspacePool> workspaces = WorkspacePool::shared();

    std::int64_t elements() const {
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        return count;
    }

    // The elements of an operand that belong to a range of the result, one row after the other.
    void load(const Operand& from, const char* base, const Range& range, char* to) const {
        const Load read_row = load_of(from.element);
        const std::int64_t columns = shape.back(), stride = from.strides.back();
        for (std::int64_t i = range.begin; i < range.end;) {
            const std::int64_t column = i % columns;
            std::int64_t row = i / columns, bytes = column * stride;
            for (std::size_t axis = shape.size() - 1; axis-- > 0;) {
                bytes += row % shape[axis] * from.strides[axis];
                row /= shape[axis];
            }
            const std::int64_t count = std::min(columns - column, range.end - i);
            read_row(base + bytes, stride, count, to);
            to += count * from.element;
            i += count;
        }
    }

    void run_block(const Addresses& at, const Range& range, char* scratch) const {
        std::array<const void*, kMostOperations> made{};
        for (std::size_t i = 0; i < instructions.size(); ++i) {
            const Instruction& it = instructions[i];
            char* const own = it.slot < 0 ? nullptr : scratch + it.slot * kBlockBytes;
            made[i] = own;
            const bool is_last = i + 1 == instructions.size();
            if (it.compute == nullptr) {
                made[i] = read(it, at, range, own);
                continue;
            }
            char* const to = is_last ? at[dst].data + range.begin * element : own;
            std::array<const void*, kMostOperands> in{};
            for (std::size_t k = 0; k < it.operands.size(); ++k) {
                in[k] = made[static_cast<std::size_t>(it.operands[k])];
            }
            it.compute(in.data(), range.size(), to);
        }
    }

    const void* read(const Instruction& it, const Addresses& at, const Range& range,
                     char* own) const {
        if (it.is_kept) return own;
        const Operand& from = operands[static_cast<std::size_t>(it.operands[0])];
        const char* const base = at[from.value];
        if (it.slot < 0) return base + range.begin * from.element;
        load(from, base, range, own);
        return own;
    }

    void keep(const Instruction& it, const Addresses& at, const Range& first, char* own) const {
        if (it.operands.empty()) return fill_elements(it.dtype, it.number, first.size(), own);
        const Operand& from = operands[static_cast<std::size_t>(it.operands[0])];
        load(from, at[from.value], first, own);
    }

    void run(const Addresses& at) const {
        const Blocks tasks{elements(), rounded_up(kTaskElements, block)};
        parallel_for(tasks.count(), [&](std::int64_t task) {
            const WorkspacePool::Lease own(*workspaces, slots * kBlockBytes);
            const Range first{0, std::min(block, elements())};
            for (const Instruction& it : instructions) {
                if (it.is_kept) keep(it, at, first, own.data() + it.slot * kBlockBytes);
            }
            const Range all = tasks.at(task);
            for (std::int64_t i = all.begin; i < all.end; i += block) {
                run_block(at, {i, std::min(i + block, all.end)}, own.data());
            }
        });
    }
};

[[noreturn]] void refuse_map(const std::string& sentence) {
    throw std::invalid_argument("a map " + sentence);
}

// Of the operands of an operation: "where" has the conditions in front.
MapCompute compute_of(const MapOperation& it, const std::vector<MapOperation>& before) {
    const auto type_of = [&](int number) -> const std::string& {
        return before[static_cast<std::size_t>(number)].dtype;
    };
    const std::string of = " of " + std::to_string(it.operands.size()) + " operands";
    if (it.operands.empty()) refuse_map("has no function " + it.function + of);
    const std::string& dtype = type_of(it.operands.back());
    if (it.function == "cast" && it.operands.size() == 1) return map_conversion(dtype, it.dtype);
    const MapFunction* const found = find_map_function(it.function, dtype);
    if (found == nullptr || found->operands != it.operands.size()) {
        refuse_map("has no function " + it.function + of + " of type " + dtype);
    }
    const bool is_number = it.dtype == "float32" && found->to_floats != nullptr;
    bool is_alike = is_number || it.dtype == (found->is_condition ? "bool" : dtype);
    for (std::size_t i = 0; i < it.operands.size(); ++i) {
        const bool decides = it.function == "where" && i == 0;
        is_alike &= type_of(it.operands[i]) == (decides ? "bool" : dtype);
    }
    if (!is_alike) refuse_map("has no " + it.function + " of these types to " + it.dtype);
    return is_number ? found->to_floats : found->compute;
}

void require_known(const MapOperation& it, std::size_t inputs, std::size_t before) {
    const bool is_input = it.function == "input";
    const auto limit = static_cast<int>(is_input ? inputs : before);
    const bool is_known = std::all_of(it.operands.begin(), it.operands.end(),
                                      [&](int place) { return place >= 0 && place < limit; });
    if (!is_known || (is_input && it.operands.size() != 1)) {
        refuse_map("has operands of " + it.function + " that are not there");
    }
    if (it.function == "number" && it.dtype.find("float") == std::string::npos &&
        !(std::abs(it.number) <= kMostExact)) {
        refuse_map("has the number " + std::to_string(it.number) + " of type " + it.dtype +
                   ", expected at most 2^53");
    }
}

// Blocks of whole rows where rows that are alike fit, so that these are read once a task.
void keep_alike(Mapping& it) {
    const std::int64_t columns = std::max<std::int64_t>(it.shape.back(), 1);
    const std::int64_t rows = it.block / columns;
    bool has_rows = false;
    for (Instruction& each : it.instructions) {
        if (each.compute != nullptr) continue;
        each.is_kept = each.operands.empty();
        if (each.is_kept || rows == 0) continue;
        each.is_kept = it.operands[static_cast<std::size_t>(each.operands[0])].is_row();
        has_rows = has_rows || each.is_kept;
    }
    if (has_rows) it.block = rows * columns;
}

// What is kept has a slot of its own, others share those that nothing reads any more.
int place_in_slots(std::vector<Instruction>& made) {
    std::vector<std::size_t> last(made.size(), 0);
    for (std::size_t i = 0; i < made.size(); ++i) {
        if (made[i].compute == nullptr) continue;
        for (const int it : made[i].operands) last[static_cast<std::size_t>(it)] = i;
    }
    std::vector<std::size_t> free_after;  // of slots: the instruction that reads them last
    for (std::size_t i = 0; i < made.size(); ++i) {
        Instruction& it = made[i];
        if (it.slot < 0) continue;
        auto found = it.is_kept ? free_after.end()
                                : std::find_if(free_after.begin(), free_after.end(),
                                               [&](std::size_t end) { return end < i; });
        if (found == free_after.end()) found = free_after.insert(found, 0);
        *found = it.is_kept ? made.size() : std::max(last[i], i);
        it.slot = static_cast<int>(found - free_after.begin());
    }
    return static_cast<int>(free_after.size());
}

std::vector<Operand> operands_of(const Network& network, const MappedValues& values) {
    const NetworkTensor& dst = network.tensor(values.dst);
    std::vector<Operand> made;
    for (const int value : values.operands) {
        const NetworkTensor& tensor = network.tensor(value);
        if (tensor.shape != dst.shape) {
            refuse_map("is of arrays of one shape: " + tensor.described() + " to " +
                       dst.described());
        }
        made.push_back({value, tensor.is_dense(), tensor.strides, tensor.element});
        if (tensor.strides.empty()) made.back().strides.push_back(0);
    }
    return made;
}

Mapping mapping_of(const Network& network, const std::vector<MapOperation>& operations,
                   const MappedValues& values) {
    if (operations.empty() || operations.size() > kMostOperations) {
        refuse_map("has " + std::to_string(operations.size()) + " operations, expected 1 to " +
                   std::to_string(kMostOperations));
    }
    Mapping made{.operands = operands_of(network, values), .dst = values.dst};
    for (const MapOperation& it : operations) {
        require_known(it, values.operands.size(), made.instructions.size());
        Instruction next{
            .operands = it.operands, .slot = 0, .dtype = it.dtype, .number = it.number};
        if (it.function == "input") {
            const Operand& operand = made.operands[static_cast<std::size_t>(it.operands[0])];
            const NetworkTensor& tensor = network.tensor(operand.value);
            if (tensor.dtype != it.dtype) {
                refuse_map("reads " + tensor.described() + " as " + it.dtype);
            }
            next.slot = operand.is_dense ? -1 : 0;
        } else if (it.function == "number") {
            if (!it.operands.empty()) refuse_map("has a number of operands");
        } else {
            next.compute = compute_of(it, operations);
        }
        made.instructions.push_back(std::move(next));
    }
    return made;
}

std::int64_t widest(const std::vector<MapOperation>& operations) {
    std::int64_t bytes = 1;
    for (const MapOperation& it : operations) {
        bytes = with_element_type(it.dtype, [&](auto of) {
            return std::max(bytes, static_cast<std::int64_t>(sizeof(typename decltype(of)::Type)));
        });
    }
    return bytes;
}

}  // namespace

NetworkStep map_step(const Network& network, const std::vector<MapOperation>& operations,
                     const MappedValues& values, std::string label) {
    const NetworkTensor& dst = network.tensor(values.dst);
    std::vector<MapOperation> all = operations;
    const bool is_made =
        !all.empty() && (all.back().function == "input" || all.back().function == "number");
    if (is_made) {  // which only what computes writes to the result
        all.push_back({.function = "cast",
                       .dtype = all.back().dtype,
                       .operands = {static_cast<int>(all.size()) - 1}});
    }
    Mapping it = mapping_of(network, all, values);
    if (!dst.is_dense() || all.back().dtype != dst.dtype) {
        refuse_map("makes " + all.back().dtype + " in C order, expected " + dst.described());
    }
    it.shape = dst.shape;
    it.element = dst.element;
    if (it.shape.empty()) it.shape.push_back(1);
    it.block = kBlockBytes / widest(all);
    keep_alike(it);
    it.slots = place_in_slots(it.instructions);
    NetworkStep step{
        .kind = "map", .label = std::move(label), .reads = values.operands, .writes = {values.dst}};
    step.run = [it = std::move(it)](const Addresses& at) { it.run(at); };
    return step;
}

}  // namespace dlprim
