#include "graph/network.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "graph/copy_step.h"

namespace dlprim {
namespace {

std::string indented(const std::string& lines, const std::string& indent) {
    std::string text;
    for (std::size_t begin = 0, end = 0; begin < lines.size(); begin = end + 1) {
        end = std::min(lines.find('\n', begin), lines.size());
        text += indent + lines.substr(begin, end - begin) + "\n";
    }
    return text;
}

[[noreturn]] void refuse(const std::string& sentence) { throw std::invalid_argument(sentence); }

}  // namespace

std::string name_of(const NetworkStep& step) {
    return "step " + step.label + " (" + step.kind + ")";
}

bool may_replace(const NetworkStep& step, int value) {
    return std::count(step.reads.begin(), step.reads.end(), value) <=
           std::count(step.replaced.begin(), step.replaced.end(), value);
}

const Network::Value& Network::at(int value) const {
    if (value < 0 || value >= count()) {
        refuse("there is no value " + std::to_string(value) + ", expected one of the " +
               std::to_string(count()) + " of the network");
    }
    return values_[static_cast<std::size_t>(value)];
}

void Network::require_open() const {
    if (is_finished_) refuse("the network is finished: nothing can be added to it");
}

int Network::add_value(Value value) {
    require_open();
    if (value.root < 0) value.root = count();
    values_.push_back(std::move(value));
    return count() - 1;
}

int Network::input(NetworkTensor tensor) {
    const auto number = static_cast<std::int64_t>(inputs_.size());
    inputs_.push_back(
        add_value({.tensor = std::move(tensor), .kind = Kind::input, .number = number}));
    return inputs_.back();
}

int Network::state(NetworkTensor tensor) {
    const int made = input(std::move(tensor));
    values_[index(made)].kind = Kind::state;
    return made;
}

int Network::next_of(int state) {
    const Value& it = at(state);
    if (it.kind != Kind::state || it.root != state || it.is_next || it.next >= 0) {
        refuse("value " + std::to_string(state) + " has no next one, expected a state without one");
    }
    Value made = it;
    made.is_next = true;
    const int number = add_value(std::move(made));
    return values_[index(state)].next = number;
}

int Network::constant(NetworkTensor tensor, const void* data) {
    return add_value({.tensor = std::move(tensor),
                      .kind = Kind::constant,
                      .data = static_cast<char*>(const_cast<void*>(data))});
}

int Network::temporary(NetworkTensor tensor) { return add_value({.tensor = std::move(tensor)}); }

int Network::view(int of, NetworkTensor tensor, std::int64_t offset) {
    const Value& seen = at(of);
    Value made{.tensor = std::move(tensor),
               .kind = seen.kind,
               .root = seen.root,
               .offset = seen.offset + offset,
               .number = seen.number,
               .data = seen.data,
               .is_next = seen.is_next,
               .next = seen.next};
    const auto [low, high] = made.tensor.extent();
    const auto [first, last] = at(seen.root).tensor.extent();
    if (made.offset + low < first || made.offset + high > last) {
        refuse("a view of value " + std::to_string(of) + ", which is " + seen.tensor.described() +
               ", reaches from byte " + std::to_string(made.offset + low) + " to " +
               std::to_string(made.offset + high) + ", expected a view within its bytes " +
               std::to_string(first) + " to " + std::to_string(last));
    }
    return add_value(std::move(made));
}

const void* Network::constant_data(int value) const {
    const Value& it = at(value);
    return it.kind == Kind::constant ? it.data + it.offset : nullptr;
}

bool Network::share_elements(int one, int other) const {
    const Value &a = at(one), &b = at(other);
    return a.root == b.root &&
           may_overlap(at(a.root).tensor, {a.tensor, a.offset}, {b.tensor, b.offset});
}

bool Network::is_same_memory(int one, int other) const {
    const Value &a = at(one), &b = at(other);
    return one == other ||
           (a.root == b.root && a.offset == b.offset && a.tensor.element == b.tensor.element &&
            a.tensor.bytes() == b.tensor.bytes() && a.tensor.is_dense() && b.tensor.is_dense());
}

void Network::require_sound(const NetworkStep& step) const {
    for (const int read : step.reads) {
        require_written(read, name_of(step));
        require_old(read, name_of(step));
    }
    for (std::size_t i = 0; i < step.writes.size(); ++i) {
        const int written = step.writes[i];
        const Value& it = at(written);
        if (it.kind != Kind::temporary && it.kind != Kind::result && !it.is_next) {
            refuse(name_of(step) + " writes value " + std::to_string(written) +
                   ", which is an input or a constant, expected a temporary, or what a state "
                   "becomes");
        }
        if (it.is_next) require_first(step, written);
        const auto require_apart = [&](int other) {
            if (!share_elements(written, other)) return;
            refuse(name_of(step) + " writes value " + std::to_string(written) +
                   " on memory of value " + std::to_string(other) + ", which it uses as well");
        };
        for (const int read : step.reads) {
            if (!is_same_memory(read, written) || !may_replace(step, read)) require_apart(read);
        }
        for (std::size_t other = 0; other < i; ++other) require_apart(step.writes[other]);
    }
}

void Network::add(NetworkStep step) {
    require_open();
    require_sound(step);
    const bool does_nothing = std::all_of(step.writes.begin(), step.writes.end(),
                                          [&](int value) { return tensor(value).elements() == 0; });
    if (does_nothing) return;
    for (const int written : step.writes) {
        root_of(written).is_written = true;
        if (at(written).is_next) written_states_.push_back(written);
    }
    steps_.push_back(std::move(step));
}

void Network::require_written(int value, const std::string& reader) const {
    const Value& root = at(at(value).root);
    const bool is_made = root.kind == Kind::temporary || at(value).is_next;
    if (!is_made || root.is_written || root.tensor.elements() == 0) return;
    refuse(reader + " reads value " + std::to_string(value) +
           ", which no step before it has written");
}

// That a state, where it is one, is still what it was.
void Network::require_old(int value, const std::string& reader) const {
    if (at(value).kind != Kind::state || at(value).is_next) return;
    for (const int written : written_states_) {
        if (!share_elements(written, value)) continue;
        refuse(reader + " reads value " + std::to_string(value) +
               ", a state that a step before it has changed: expected to read what it becomes");
    }
}

// That no other step has made what a state becomes, unless this one goes on from there.
void Network::require_first(const NetworkStep& step, int written) const {
    for (const int before : written_states_) {
        const bool goes_on = std::any_of(step.reads.begin(), step.reads.end(), [&](int read) {
            return at(read).is_next && share_elements(read, before);
        });
        if (goes_on || !share_elements(before, written)) continue;
        refuse(name_of(step) + " writes value " + std::to_string(written) +
               ", what a state becomes, which a step before it has written: expected one writer");
    }
}

// That steps have made as much as what a state becomes has: parts have one writer each, unless one
// goes on from another.
void Network::require_whole(int next) const {
    const Value& root = at(at(next).root);
    std::int64_t made = 0;
    for (const int it : written_states_) {
        if (at(it).root == at(next).root) made += at(it).tensor.bytes();
    }
    if (made >= root.tensor.bytes()) return;
    refuse("steps write " + std::to_string(made) + " of the " +
           std::to_string(root.tensor.bytes()) + " bytes of value " + std::to_string(next) +
           ", what a state becomes: expected all of it");
}

void Network::pause(std::int64_t inputs, std::int64_t results) {
    require_open();
    if (pauses()) refuse("the network has a pause, expected one");
    pause_ = static_cast<std::int64_t>(steps_.size());
    first_inputs_ = inputs;
    first_results_ = results;
}

bool Network::is_used(int root, const Range& steps) const {
    const auto is_of_root = [&](int value) { return at(value).root == root; };
    return std::any_of(steps_.begin() + steps.begin, steps_.begin() + steps.end,
                       [&](const NetworkStep& step) {
                           return std::any_of(step.reads.begin(), step.reads.end(), is_of_root) ||
                                  std::any_of(step.writes.begin(), step.writes.end(), is_of_root);
                       });
}

// Whether steps may make it in the array of a result: that of the first part is the caller's in the
// pause, and that of the second is not there before.
bool Network::is_in_place(std::int64_t number, int value, const std::vector<int>& results) const {
    const int root = at(value).root;
    if (at(root).kind != Kind::temporary || !is_same_memory(value, root)) return false;
    if (!pauses()) return true;
    if (number >= first_results_) return !is_used(root, {0, pause_});
    return !is_used(root, {pause_, all_steps().end}) &&
           std::none_of(results.begin() + first_results_, results.end(),
                        [&](int other) { return at(other).root == root; });
}

void Network::add_result(std::int64_t number, int value, const std::vector<int>& results) {
    if (is_in_place(number, value, results)) {
        Value& root = root_of(value);
        root.kind = Kind::result;
        root.number = number;
        return;
    }
    const NetworkTensor& tensor = this->tensor(value);
    const int copy = add_value({.tensor = dense_tensor(tensor.dtype, tensor.element, tensor.shape),
                                .kind = Kind::result,
                                .number = number});
    const std::size_t before = steps_.size();
    add(copy_step(*this, value, copy, "result " + std::to_string(number)));
    if (!pauses() || number >= first_results_ || steps_.size() == before) return;
    std::rotate(steps_.begin() + pause_, steps_.end() - 1, steps_.end());
    ++pause_;
}

void Network::require_made_in_first_part(const std::vector<int>& results) const {
    for (std::int64_t i = 0; pauses() && i < first_results_; ++i) {
        const int root = at(results.at(index(i))).root;
        if (at(root).kind != Kind::temporary || at(root).tensor.elements() == 0) continue;
        if (is_used(root, {0, pause_})) continue;
        refuse("result " + std::to_string(i) +
               " is made behind the pause, expected in front of it");
    }
}

void Network::finish(const std::vector<int>& results) {
    require_open();
    for (const int value : results) {
        require_written(value, "a result");
        require_old(value, "a result");
    }
    require_made_in_first_part(results);
    for (const int it : inputs_) {
        if (at(it).next >= 0) require_whole(at(it).next);
    }
    for (const int value : results) {
        add_result(static_cast<std::int64_t>(results_.size()), value, results);
        results_.push_back(value);
    }
    // Views are what their roots have become.
    for (Value& it : values_) {
        const Value& root = values_[static_cast<std::size_t>(it.root)];
        it.kind = root.kind;
        it.number = root.number;
    }
    make_plan();
    is_finished_ = true;
}

double Network::flops() const {
    double all = 0;
    for (const NetworkStep& step : steps_) all += step.flops;
    return all;
}

bool Network::has_states() const {
    return std::any_of(inputs_.begin(), inputs_.end(), [&](int value) { return changes(value); });
}

bool Network::runs_alone() const {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const NetworkStep& step) { return step.alone; });
}

std::string Network::described() const {
    const auto listed = [&](const std::vector<int>& numbers) {
        std::string text;
        for (const int value : numbers) {
            text += (text.empty() ? "" : ", ") + std::to_string(value) + " " +
                    tensor(value).described();
        }
        return text;
    };
    std::string text;
    const auto describe = [&](const Range& range, const std::string& indent) {
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            const NetworkStep& step = steps_[index(i)];
            text += indent + step.label + ": " + step.kind + "(" + listed(step.reads) + ") -> " +
                    listed(step.writes) + "\n" + indented(step.inside, indent + "    ");
        }
    };
    std::int64_t done = 0;
    for (const Stretch& it : stretches_) {
        describe({done, it.steps().begin}, "");
        text += std::to_string(it.branches.size()) + " branches that run side by side:\n";
        for (std::size_t i = 0; i < it.branches.size(); ++i) {
            describe(it.branches[i], "  " + std::to_string(i + 1) + " | ");
        }
        done = it.steps().end;
    }
    describe({done, static_cast<std::int64_t>(steps_.size())}, "");
    return text;
}

}  // namespace dlprim
