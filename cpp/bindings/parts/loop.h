// Loops around a network whose inputs and results are NumPy arrays: many runs in one call, until
// the condition fails, or so long that Python should look for interrupts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/graph/network.h"
#include "bindings/parts/objects.h"
#include "graph/repeat_step.h"

namespace dlprim::bindings {

class PyLoop {
public:
    using Kept = std::vector<std::pair<bool, int>>;

    // As in a LoopedBody. Throws py::value_error where these are not what the network has.
    PyLoop(const PyNetwork& network, const std::vector<std::pair<std::string, int>>& feeds,
           const std::vector<int>& carried, int condition, const Kept& kept);

    // Arrays of these kinds; kept ones have rows for all runs.
    struct Given {
        Objects fixed = {}, states = {}, rows = {}, kept = {};
    };
    struct End {
        std::int64_t next = 0;  // number of the next run
        bool holds = true;
        Objects states = {};
    };
    // Some runs, at least one; nothing where arrays are not just what the body takes.
    std::optional<End> run(const Given& given, std::int64_t first, std::int64_t count) const;

private:
    static std::size_t at(int place) { return static_cast<std::size_t>(place); }
    const std::vector<int>& results() const { return body_.body.results(); }
    void require_fit() const;
    int state_input(int place) const;
    int kept_value(std::size_t i) const;
    bool takes(const Given& given, std::int64_t last) const;
    bool is_alike(int one, int other) const;
    bool has_rows(const py::object& given, int value, std::int64_t count) const;
    Objects new_results(LoopArrays& arrays) const;
    Objects last_states(const Objects& states, const LoopRuns& end, const Objects& made) const;

    const PyNetwork& network_;
    LoopedBody body_;
};

}  // namespace dlprim::bindings
