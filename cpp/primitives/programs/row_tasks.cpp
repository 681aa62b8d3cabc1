#include "primitives/programs/row_tasks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "jit/machine.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"
#include "primitives/tensor/workspace.h"
#include "rows/row_builder.h"

namespace dlprim {
namespace {

// A multiple of every vector, so that only the last task of elements has a ragged end.
constexpr std::int64_t kTaskElements = 32 * 1024;
// Of a sum over rows, at most, and rows of one at least.
constexpr std::int64_t kMostParts = 16;
constexpr std::int64_t kFewestRows = 64;

// Elements that take less time than finding out how to share them.
constexpr std::int64_t kSmall = 8 * 1024;

// Of the last cache, from which on nothing of a result is found there when it is read; and what of
// one a core has at most: larger ones are shared by more cores than a virtual machine tells, and
// little faster than memory.
constexpr double kShareOfCache = 0.75;
constexpr double kMostOfCache = 32e6;

class Run {
public:
    Run(const RowKernel& kernel, const RowArgs& args)
        : kernel_(kernel), operands_(kernel.spec().operands), args_(args) {}

    // Whether what is written would only push out of the caches what is read: and whether it may
    // go around them.
    bool exceeds_caches() const {
        if (!dlprim::exceeds_caches(bytes())) return false;
        const std::int64_t first = is_elementwise() ? unaligned_elements() : 0;
        for (std::size_t i = 0; i < operands_.size(); ++i) {
            if (!is_written_tensor(operands_[i])) continue;
            const RowArgs::Operand& it = args_.operands.at(i);
            const auto begin = reinterpret_cast<std::uintptr_t>(it.data) +
                               static_cast<std::uintptr_t>(first * size_of(operands_[i].dtype));
            const bool rows_fit = is_elementwise() || it.stride % kCacheLineBytes == 0;
            if (begin % kCacheLineBytes != 0 || !rows_fit) return false;
        }
        return true;
    }

    // Not worth a thought about threads.
    bool is_small() const {
        return args_.rows * args_.columns <= kSmall && kernel_.scratch_floats(1) == 0;
    }

    // By `kernel`, which may store around the caches: this one's kernel takes what lies in front of
    // a cache line.
    void run(const RowKernel& kernel) const {
        const WorkOf work(row_operations(kernel_, args_), bytes());
        if (is_elementwise()) {
            const std::int64_t first = unaligned_elements();
            const Blocks tasks{args_.columns * args_.rows - first, kTaskElements};
            if (first > 0) run_elements(kernel_, {0, first});
            parallel_for(tasks.count(), [&](std::int64_t task) {
                const Range part = tasks.at(task);
                run_elements(kernel, {first + part.begin, first + part.end});
            });
        } else if (sums_columns()) {
            run_parts(kernel);
        } else {
            const Blocks tasks{args_.rows, std::max<std::int64_t>(1, kTaskElements / width())};
            parallel_for(tasks.count(),
                         [&](std::int64_t task) { run_range(kernel, part_of(tasks.at(task))); });
        }
    }

private:
    std::int64_t width() const { return std::max<std::int64_t>(1, args_.columns); }

    double elements() const {
        return static_cast<double>(args_.rows) * static_cast<double>(args_.columns);
    }
    double bytes() const {
        double each = 0;
        for (const RowOperand& operand : operands_) {
            if (operand.shape == RowShape::tensor)
                each += static_cast<double>(size_of(operand.dtype));
        }
        return each * elements();
    }

    bool is_elementwise() const {
        for (std::size_t i = 0; i < operands_.size(); ++i) {
            const RowShape shape = operands_[i].shape;
            const bool dense =
                args_.operands.at(i).stride == args_.columns * size_of(operands_[i].dtype);
            if (shape != RowShape::tensor && shape != RowShape::scalar) return false;
            if (shape == RowShape::tensor && !dense && args_.rows > 1) return false;
        }
        const auto& all = kernel_.spec().instructions;
        return std::none_of(all.begin(), all.end(), [](const RowInstruction& it) {
            return is_reduction(it.op) || it.op == RowOp::columns || it.op == RowOp::first;
        });
    }

    static bool is_written_tensor(const RowOperand& operand) {
        return operand.written && operand.shape == RowShape::tensor;
    }

    // In front of the first cache line of the first result: stores across lines take twice as long.
    std::int64_t unaligned_elements() const {
        for (std::size_t i = 0; i < operands_.size(); ++i) {
            if (!is_written_tensor(operands_[i])) continue;
            const auto begin = reinterpret_cast<std::uintptr_t>(args_.operands.at(i).data);
            const auto behind = static_cast<std::int64_t>(begin % kCacheLineBytes);
            const std::int64_t elements =
                (kCacheLineBytes - behind) % kCacheLineBytes / size_of(operands_[i].dtype);
            return std::min(elements, args_.columns * args_.rows);
        }
        return 0;
    }

    static bool is_sum(const RowOperand& operand) {
        return operand.shape == RowShape::column && operand.written;
    }
    bool sums_columns() const { return std::any_of(operands_.begin(), operands_.end(), is_sum); }

    RowArgs part_of(Range rows) const {
        RowArgs part = args_;
        part.rows = rows.size();
        for (std::size_t i = 0; i < operands_.size(); ++i) {
            const RowShape shape = operands_[i].shape;
            if (shape == RowShape::column || shape == RowShape::scalar) continue;
            RowArgs::Operand& it = part.operands.at(i);
            it.data = static_cast<char*>(it.data) + rows.begin * it.stride;
        }
        return part;
    }

    void run_elements(const RowKernel& kernel, Range columns) const {
        RowArgs part = args_;
        part.rows = 1;
        part.columns = columns.size();
        for (std::size_t i = 0; i < operands_.size(); ++i) {
            if (operands_[i].shape != RowShape::tensor) continue;
            RowArgs::Operand& it = part.operands.at(i);
            it.data = static_cast<char*>(it.data) + columns.begin * size_of(operands_[i].dtype);
        }
        run_range(kernel, part);
    }

    static void run_range(const RowKernel& kernel, RowArgs part) {
        const std::int64_t floats = kernel.scratch_floats(part.columns);
        const WorkspacePool::Lease scratch(WorkspacePool::lasting(), floats * size_of(DType::f32));
        part.scratch = reinterpret_cast<float*>(scratch.data());
        kernel(part);
    }

    // Every part adds its rows to columns of its own.
    void run_parts(const RowKernel& kernel) const {
        const Blocks parts{args_.rows,
                           std::max(kFewestRows, (args_.rows + kMostParts - 1) / kMostParts)};
        const std::int64_t line = aligned(args_.columns * size_of(DType::f32));
        const auto sums = std::count_if(operands_.begin(), operands_.end(), is_sum);
        const WorkspacePool::Lease own(WorkspacePool::lasting(), parts.count() * sums * line);
        parallel_for(parts.count(), [&](std::int64_t index) {
            RowArgs part = part_of(parts.at(index));
            char* next = own.data() + index * sums * line;
            std::memset(next, 0, static_cast<std::size_t>(sums * line));
            for (std::size_t i = 0; i < operands_.size(); ++i) {
                if (!is_sum(operands_[i])) continue;
                part.operands.at(i).data = next;
                next += line;
            }
            run_range(kernel, part);
        });
        for (std::int64_t index = 0; index < parts.count(); ++index) {
            const char* next = own.data() + index * sums * line;
            for (std::size_t i = 0; i < operands_.size(); ++i) {
                if (!is_sum(operands_[i])) continue;
                add(reinterpret_cast<const float*>(next),
                    static_cast<float*>(args_.operands.at(i).data));
                next += line;
            }
        }
    }

    void add(const float* from, float* to) const {
        for (std::int64_t i = 0; i < args_.columns; ++i) to[i] += from[i];
    }

    const RowKernel& kernel_;
    const std::vector<RowOperand>& operands_;
    const RowArgs& args_;
};

}  // namespace

bool exceeds_caches(double bytes) {
    return bytes >= kShareOfCache * std::min(this_machine().l3, kMostOfCache);
}

double row_operations(const RowKernel& kernel, const RowArgs& args) {
    return static_cast<double>(args.rows) * static_cast<double>(args.columns) *
           static_cast<double>(kernel.spec().instructions.size());
}

void run_rows(const RowKernel& kernel, const RowArgs& args) {
    if (is_listed(kernel.spec())) {
        throw std::invalid_argument(
            "a row program has listed rows, expected rows that may be shared among threads");
    }
    const Run run(kernel, args);
    if (run.is_small()) return kernel(args);
    if (!run.exceeds_caches()) return run.run(kernel);
    run.run(*row_kernel(streaming(kernel.spec()), kernel.isa()));
}

}  // namespace dlprim
