#include "graph/functions/tree_sums.h"

#include <algorithm>
#include <array>
#include <limits>

#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

constexpr int kWalkers = 8;  // paths that are followed side by side
// Rows of a task: more where the nodes of all trees are far away.
constexpr std::int64_t kRows = 64, kRowsOfMany = 512;
constexpr std::int64_t kManyBytes = 1 << 20;
constexpr std::int32_t kFeature = std::numeric_limits<std::int32_t>::max();

enum class Aggregate { sum, least, greatest };

template <class T>
using Rows = std::array<const T*, kWalkers>;
using Places = std::array<std::int32_t, kWalkers>;

// Until all are at leaves: one load waits for the other on a path, so others go on meanwhile.
template <class T>
void walk(const TreeNode<T>* nodes, const Rows<T>& rows, Places& places) {
    Places at = places;
    std::int32_t moved = 1;
    while (moved != 0) {
        moved = 0;
#pragma GCC unroll 8
        for (std::size_t i = 0; i < kWalkers; ++i) {
            const TreeNode<T>& node = nodes[at[i]];
            const T value = rows[i][node.feature & kFeature];
            const bool is_lost = node.feature < 0 && value != value;
            const std::int32_t next =
                node.ends[static_cast<int>(value <= node.split) | static_cast<int>(is_lost)];
            moved |= next ^ at[i];
            at[i] = next;
        }
    }
    places = at;
}

template <class T>
struct Forest {
    ArrayCall call;
    std::int64_t rows = 0, features = 0, trees = 0, outputs = 0;
    std::int64_t block = kRows;
    Aggregate aggregate = Aggregate::sum;

    struct Task {
        const T* x;
        const TreeNode<T>* nodes;
        const std::int32_t *roots, *starts, *targets;
        const T* numbers;
        double* totals;
        bool* seen;  // null where nobody asks
    };

    void add(const Task& task, std::int64_t row, std::int32_t leaf) const {
        double* const totals = task.totals + row * outputs;
        if (task.seen == nullptr) {
            for (std::int32_t i = task.starts[leaf]; i < task.starts[leaf + 1]; ++i) {
                totals[task.targets[i]] += static_cast<double>(task.numbers[i]);
            }
            return;
        }
        bool* const seen = task.seen + row * outputs;
        for (std::int32_t i = task.starts[leaf]; i < task.starts[leaf + 1]; ++i) {
            const std::int32_t target = task.targets[i];
            const auto number = static_cast<double>(task.numbers[i]);
            double& total = totals[target];
            if (aggregate == Aggregate::sum) {
                total += number;
            } else if (!seen[target]) {
                total = number;
            } else {
                total = aggregate == Aggregate::least ? std::min(total, number)
                                                      : std::max(total, number);
            }
            seen[target] = true;
        }
    }

    // A tree after the other, so that its nodes are read for many rows while they are near.
    void add_rows(const Task& task, std::int64_t first) const {
        for (std::int64_t tree = 0; tree < trees; ++tree) {
            Rows<T> from;
            Places places;
            for (std::size_t i = 0; i < kWalkers; ++i) {
                from[i] = task.x + (first + static_cast<std::int64_t>(i)) * features;
            }
            places.fill(task.roots[tree]);
            walk(task.nodes, from, places);
            for (std::size_t i = 0; i < kWalkers; ++i) {
                add(task, first + static_cast<std::int64_t>(i), places[i]);
            }
        }
    }

    void add_row(const Task& task, std::int64_t row) const {
        Rows<T> from;
        from.fill(task.x + row * features);
        for (std::int64_t tree = 0; tree < trees; tree += kWalkers) {
            const auto count =
                static_cast<std::size_t>(std::min<std::int64_t>(kWalkers, trees - tree));
            Places places;
            places.fill(task.roots[tree]);
            std::copy_n(task.roots + tree, count, places.begin());
            walk(task.nodes, from, places);
            for (std::size_t i = 0; i < count; ++i) add(task, row, places[i]);
        }
    }

    void run_block(const Addresses& at, std::int64_t begin) const {
        const std::int64_t count = std::min(block, rows - begin), cells = count * outputs;
        const auto bytes = static_cast<std::int64_t>(sizeof(double) + sizeof(bool)) * cells;
        const WorkspacePool::Lease own(WorkspacePool::lasting(), bytes);
        auto* const totals = reinterpret_cast<double*>(own.data());
        const std::vector<int>& in = call.inputs;
        const bool is_summed = aggregate == Aggregate::sum && call.outputs.size() == 1;
        const T* const x = at[in[0]];
        const Task task{.x = x + begin * features,
                        .nodes = at[in[1]],
                        .roots = at[in[2]],
                        .starts = at[in[3]],
                        .targets = at[in[4]],
                        .numbers = at[in[5]],
                        .totals = totals,
                        .seen = is_summed ? nullptr : reinterpret_cast<bool*>(totals + cells)};
        std::fill_n(task.totals, cells, 0.0);
        if (!is_summed) std::fill_n(task.seen, cells, false);
        std::int64_t row = 0;
        for (; row + kWalkers <= count; row += kWalkers) add_rows(task, row);
        for (; row < count; ++row) add_row(task, row);
        T* const sums = at[call.outputs[0]];
        for (std::int64_t i = 0; i < cells; ++i) {
            sums[begin * outputs + i] = static_cast<T>(task.totals[i]);
        }
        if (call.outputs.size() < 2) return;
        T* const seen = at[call.outputs[1]];
        for (std::int64_t i = 0; i < cells; ++i) {
            seen[begin * outputs + i] = static_cast<T>(task.seen[i] ? 1 : 0);
        }
    }

    void run(const Addresses& at) const {
        const auto paths = static_cast<double>(rows * trees);
        const WorkOf work(16 * paths, 64 * paths);
        parallel_for((rows + block - 1) / block,
                     [&](std::int64_t number) { run_block(at, number * block); });
    }
};

template <class T>
RunOfCall summed(const Network& network, const ArrayCall& call) {
    const NetworkTensor &x = network.tensor(call.inputs[0]), &dst = network.tensor(call.outputs[0]);
    const Forest<T> made{
        .call = call,
        .rows = x.shape[0],
        .features = x.shape[1],
        .trees = network.tensor(call.inputs[2]).elements(),
        .outputs = dst.shape[1],
        .block = network.tensor(call.inputs[1]).bytes() > kManyBytes ? kRowsOfMany : kRows,
        .aggregate = static_cast<Aggregate>(number_of(call, "aggregate"))};
    return [made](const Addresses& at) { made.run(at); };
}

}  // namespace

RunOfCall tree_sums(const Network& network, const ArrayCall& call) {
    const auto is = [&](int value, const std::string& dtype, std::size_t rank) {
        return network.tensor(value).dtype == dtype && network.tensor(value).shape.size() == rank;
    };
    const std::vector<int>& in = call.inputs;
    bool fits = in.size() == 6 && (call.outputs.size() == 1 || call.outputs.size() == 2);
    const std::string dtype = fits ? network.tensor(in[0]).dtype : "";
    const bool is_double = dtype == "float64";
    fits = fits && (is_double || dtype == "float32") && is(in[0], dtype, 2) &&
           is(in[1], "int32", 2) && is(in[2], "int32", 1) && is(in[3], "int32", 1) &&
           is(in[4], "int32", 1) && is(in[5], dtype, 1) &&
           std::all_of(call.outputs.begin(), call.outputs.end(), [&](int value) {
               const std::vector<std::int64_t>& shape = network.tensor(value).shape;
               return is(value, dtype, 2) && shape[0] == network.tensor(in[0]).shape[0] &&
                      shape == network.tensor(call.outputs[0]).shape;
           });
    const std::size_t bytes = is_double ? sizeof(TreeNode<double>) : sizeof(TreeNode<float>);
    fits = fits && network.tensor(in[0]).shape[1] > 0 &&
           4 * network.tensor(in[1]).shape[1] == static_cast<std::int64_t>(bytes);
    require_fit(fits, network, call,
                "x (rows, features), nodes, roots, starts, outputs and numbers, and (rows, "
                "outputs) of x's type, float32 or float64");
    return is_double ? summed<double>(network, call) : summed<float>(network, call);
}

}  // namespace dlprim
