// A whole network as a list of steps on numbered values, run by one call. What is known before the
// first run is decided before it: which values share memory, where each one is, and that no step
// reads what nothing wrote. A run then takes one piece of memory from the pool that all primitives
// share, writes down where every value is, and calls the steps in their order, or those of branches
// side by side (branches.h); so it allocates nothing, and any number of threads may run one network
// at once, each in its own memory.
//
// A state is memory of the caller that a run changes: weights, moments, counters. Its old value and
// the one that it becomes are two values in one place, so that a step says which of them it reads;
// steps run in the order in which they were added where they meet there, and a step that asks for
// the old value when it is gone is refused.
//
// A network may pause until somebody has what its second part takes: both have one plan, so that
// what goes from one to the other stays where it is. Results are the same bits from run to run and
// for any number of threads, as those of every step are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/branches.h"
#include "graph/buffer_plan.h"
#include "graph/network_step.h"
#include "graph/network_tensor.h"
#include "graph/run_events.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {

class Network {
public:
    // Each returns the number of a new value.
    int input(NetworkTensor tensor);  // dense; run() takes them in the order of these calls
    int constant(NetworkTensor tensor, const void* data);  // which stays where it is
    // An input whose array a run may change, and what it becomes there: a value that steps write,
    // as many elements as it has, and that others read behind them. Those that read the state
    // itself come before, or replace what they read. Throws std::invalid_argument for the next of
    // anything else, or twice.
    int state(NetworkTensor tensor);
    int next_of(int state);
    int temporary(NetworkTensor tensor);  // dense; in memory from the plan
    // What starts `offset` bytes from the first element of a value, seen as another tensor. Throws
    // std::invalid_argument where it reaches outside.
    int view(int of, NetworkTensor tensor, std::int64_t offset);

    int count() const { return static_cast<int>(values_.size()); }
    // Throws std::invalid_argument for what is no number of a value.
    const NetworkTensor& tensor(int value) const { return at(value).tensor; }
    // Of a constant, else null.
    const void* constant_data(int value) const;
    // Whether two values are the same elements, all of them dense.
    bool is_same_memory(int one, int other) const;

    // A step that writes no element is left out. Throws std::invalid_argument where the step writes
    // what is not to be written, or what it also reads, or reads what no step wrote.
    void add(NetworkStep step);
    std::size_t steps() const { return steps_.size(); }

    // What was added so far is the first part, which takes so many of the first inputs and makes so
    // many of the first results. Throws std::invalid_argument where it is called twice.
    void pause(std::int64_t inputs, std::int64_t results);
    std::int64_t first_inputs() const { return first_inputs_; }
    std::int64_t first_results() const { return first_results_; }
    bool pauses() const { return pause_ >= 0; }

    // Makes the plan. No value or step is added after this. A value may be a result more than once,
    // and any value may be one; a whole temporary, whatever its shape, lies in the array of the
    // result from the start, all others are copied there at the end.
    void finish(const std::vector<int>& results);
    bool is_finished() const { return is_finished_; }

    // First elements of dense arrays. No result and no state that has a next one shares memory with
    // an input, a constant, a state or a result besides; such states are written.
    struct Arrays {
        const std::vector<const void*>& inputs;
        const std::vector<void*>& results;
    };
    // Of `events`, where somebody waits for them, array i is inputs[i], and behind these results:
    // it is final when the last step that reads or writes it has run, and they end with the run.
    void run(const Arrays& arrays, RunEvents* events = nullptr) const;
    // The same of a network that is finished, with arrays for all inputs and behind them results.
    void run(char* const* arrays) const;

private:
    // Bases of places: of constants, whose offsets are addresses; the memory of the plan; inputs;
    // and behind these results.
    static constexpr std::size_t kNoBase = 0;
    static constexpr std::size_t kPlan = 1;
    static constexpr std::size_t kInputs = 2;

    // Of a run: scratch, with the addresses of all values.
    class Memory {
    public:
        explicit Memory(const Network& network);
        // The array of an input, or behind these of a result.
        void set(std::size_t number, const void* array) {
            bases_[kInputs + number] = reinterpret_cast<std::intptr_t>(array);
        }
        // When all arrays that steps meet are set.
        Addresses addresses() const;

    private:
        const Network& network_;
        WorkspacePool::Lease own_;
        std::intptr_t* bases_;
        std::intptr_t* addresses_;
    };

public:
    // A run that has come as far as the pause. Its memory is its own until it ends.
    class Paused {
    public:
        // Runs the first part. Arrays are as of run(); what only the second part takes or makes is
        // null. Of a network that pauses, and outlives this.
        Paused(const Network& network, const Arrays& arrays);
        // Runs the rest, with the arrays that were null, once.
        void resume(const Arrays& arrays, RunEvents* events = nullptr);

    private:
        const Network& network_;
        Memory memory_;
    };

    // Runs one step after the other, and says how many seconds each one took.
    struct StepTime {
        std::string kind = {};
        std::string label = {};
        double seconds = 0;
    };
    std::vector<StepTime> profile(const Arrays& arrays) const;

    // What each step would take on so many threads, one step after the other, and the whole run,
    // branches side by side: a run that computes nothing (jit/pricing.h).
    struct Price {
        std::string kind = {};
        std::string label = {};
        double alone = 0;  // cycles on one thread
        double shared = 0;
        std::int64_t loops = 0;
        std::int64_t tasks = 0;  // of all loops
    };
    struct Prices {
        std::vector<Price> steps = {};
        double alone = 0;
        double shared = 0;
    };
    Prices priced(const Arrays& arrays, int threads) const;

    // Of arrays of a run, in their order.
    const std::vector<int>& inputs() const { return inputs_; }
    const std::vector<int>& results() const { return results_; }
    // How many of the steps have run when an array of a run, by its number there, is final.
    std::size_t final_after(std::size_t array) const { return final_after_.at(array); }

    double flops() const;
    bool runs_alone() const;                                       // whether any step does
    bool changes(int value) const { return at(value).next >= 0; }  // an input that a run writes
    bool has_states() const;                                       // that it changes

    // Steps that run side by side where there are threads; by their places in the order of
    // described() and profile().
    const std::vector<Stretch>& stretches() const { return stretches_; }

    // Of temporaries that are no results: in the plan, and what steps need at one time at most.
    std::int64_t planned_bytes() const { return plan_.bytes; }
    std::int64_t live_bytes() const { return largest_live_set(lifetimes_); }
    std::string described() const;

private:
    enum class Kind : std::uint8_t { input, state, constant, temporary, result };

    struct Value {
        NetworkTensor tensor = {};
        Kind kind = Kind::temporary;
        int root = -1;             // itself, unless it is a view
        std::int64_t offset = 0;   // bytes from the root's first element
        std::int64_t number = -1;  // among inputs, or among results
        char* data = nullptr;      // of a constant
        bool is_written = false;   // of a root
        bool is_next = false;      // what a state becomes, or a view of that
        int next = -1;             // of a state: the number of what it becomes
    };

    // Of a root.
    struct Access {
        std::size_t step = 0;
        int value = -1;
        bool writes = false;
    };

    // Where a value is, from one of the bases of a run.
    struct Place {
        std::size_t base = 0;
        std::int64_t offset = 0;
    };

    static std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }
    const Value& at(int value) const;
    Value& root_of(int value) {
        return values_[static_cast<std::size_t>(values_[static_cast<std::size_t>(value)].root)];
    }
    int add_value(Value value);
    void require_open() const;
    void require_written(int value, const std::string& reader) const;
    void require_old(int value, const std::string& reader) const;
    void require_first(const NetworkStep& step, int written) const;
    void require_whole(int next) const;
    bool share_elements(int one, int other) const;
    void require_sound(const NetworkStep& step) const;
    void require_made_in_first_part(const std::vector<int>& results) const;
    void add_result(std::int64_t number, int value, const std::vector<int>& results);
    bool is_used(int root, const Range& steps) const;
    bool is_in_place(std::int64_t number, int value, const std::vector<int>& results) const;
    void make_plan();
    void make_branches();
    void count_uses();
    bool must_wait(const Access& one, const Access& other) const;
    void share_memory(std::size_t step, int written);
    Place place_of(const Value& value) const;
    // Calls `run` with the addresses of all values.
    template <class ArrayOf, class Run>
    void run_on(const ArrayOf& array_of, const Run& run) const;
    template <class Run>
    void run_on(const Arrays& arrays, const Run& run) const;
    void require_ready(const Arrays& arrays) const;
    std::size_t arrays() const { return inputs_.size() + results_.size(); }
    static const void* array_of(const Arrays& arrays, std::size_t number) {
        const std::size_t inputs = arrays.inputs.size();
        return number < inputs ? arrays.inputs[number] : arrays.results[number - inputs];
    }
    // Steps from a place in their order to another, which no stretch goes over.
    void run_part(const Range& steps, const Addresses& at, RunEvents* events = nullptr) const;
    // The same, and tells of what is final.
    void run_told(const Range& steps, const Addresses& at, RunEvents* events) const;
    // How many of these steps use each array of a run.
    std::vector<int> uses_in(const Range& steps) const;
    Range all_steps() const { return {0, static_cast<std::int64_t>(steps_.size())}; }
    void run_steps(const Range& steps, const Addresses& at, RunEvents* events) const;
    void run_branches(const Stretch& stretch, const Addresses& at, RunEvents* events) const;

    std::vector<Value> values_ = {};
    std::vector<NetworkStep> steps_ = {};
    std::vector<int> inputs_ = {};
    std::vector<int> results_ = {};
    std::int64_t pause_ = -1;  // the first step of the second part
    std::int64_t first_inputs_ = 0;
    std::int64_t first_results_ = 0;
    std::vector<int> written_states_ = {};  // values of what states become that steps write
    bool is_finished_ = false;
    std::vector<Stretch> stretches_ = {};
    std::vector<BranchOf> branch_of_ = {};  // of the steps
    std::vector<std::size_t> owners_ = {};  // of roots: the value whose memory they have
    std::vector<Lifetime> lifetimes_ = {};  // of these; all other values have none
    BufferPlan plan_ = {};
    std::vector<Place> places_ = {};
    std::vector<std::vector<std::size_t>> used_by_ = {};  // arrays of a run, of each step
    std::vector<std::size_t> final_after_ = {};
    std::shared_ptr<WorkspacePool> workspaces_ = WorkspacePool::shared();
};

}  // namespace dlprim
