// Networks whose branches run side by side, against their steps one after the other.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "graph/network.h"
#include "primitives/tensor/parallel.h"

using namespace dlprim;

namespace {

NetworkTensor floats(std::vector<std::int64_t> shape) {
    return dense_tensor("float32", 4, std::move(shape));
}

// Where a step read and wrote, in bytes.
struct Touched {
    const char* begin;
    const char* end;
    bool is_written;

    bool collides(const Touched& other) const {
        return (is_written || other.is_written) && begin < other.end && other.begin < end;
    }
};
using Record = std::map<std::string, std::vector<Touched>>;

// A network that is drawn, and the same on arrays of its own.
class DrawnNetwork {
public:
    explicit DrawnNetwork(unsigned seed) : random_(seed) {
        for (int i = 0; i < 2; ++i) add_root(network_.input(floats({draw(1, 700)})));
        const std::int64_t steps = draw(1, 60);
        for (std::int64_t i = 0; i < steps; ++i) add_step(i);
        for (int i = 0; i < 3; ++i) results_.push_back(any_value());
        network_.finish(results_);
    }

    // The results, one behind the other.
    std::vector<float> run() const {
        std::vector<const void*> inputs;
        for (const auto& it : inputs_) inputs.push_back(it.data());
        std::vector<std::vector<float>> made = new_results();
        std::vector<void*> results;
        for (auto& it : made) results.push_back(it.data());
        network_.run({inputs, results});
        return joined(made);
    }

    std::vector<float> expected() const {
        std::vector<std::vector<float>> roots = roots_;
        std::vector<char*> addresses;
        for (const Place& it : places_) {
            addresses.push_back(reinterpret_cast<char*>(roots[it.root].data() + it.first));
        }
        for (const NetworkStep& it : steps_) it.run({addresses.data()});
        std::vector<std::vector<float>> made = new_results();
        for (std::size_t i = 0; i < results_.size(); ++i) {
            const auto* const from =
                reinterpret_cast<float*>(addresses[static_cast<std::size_t>(results_[i])]);
            std::copy_n(from, made[i].size(), made[i].begin());
        }
        return joined(made);
    }

    // Labels of the steps in the order in which they run.
    std::vector<std::string> order() const {
        std::vector<const void*> inputs;
        for (const auto& it : inputs_) inputs.push_back(it.data());
        std::vector<std::vector<float>> made = new_results();
        std::vector<void*> results;
        for (auto& it : made) results.push_back(it.data());
        std::vector<std::string> labels;
        for (const auto& it : network_.profile({inputs, results})) labels.push_back(it.label);
        return labels;
    }

    const Network& network() const { return network_; }
    Record& record() const { return *record_; }

private:
    struct Place {
        std::size_t root;
        std::int64_t first;  // element
        std::int64_t count;
    };

    std::int64_t draw(std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
    }

    int any_value() { return written_[static_cast<std::size_t>(draw(0, last(written_)))]; }
    template <class List>
    static std::int64_t last(const List& list) {
        return static_cast<std::int64_t>(list.size()) - 1;
    }

    const Place& place(int value) const { return places_[static_cast<std::size_t>(value)]; }

    void add_root(int value) {
        std::vector<float> elements;
        for (std::int64_t i = network_.tensor(value).elements(); i > 0; --i) {
            elements.push_back(static_cast<float>(draw(-1000, 1000)) / 64);
        }
        inputs_.push_back(elements);
        add_place(value, {roots_.size(), 0, static_cast<std::int64_t>(elements.size())});
        roots_.push_back(std::move(elements));
        written_.push_back(value);
    }

    void add_place(int value, Place place) {
        REQUIRE(value == last(places_) + 1);
        places_.push_back(place);
    }

    int temporary(std::int64_t count) {
        const int made = network_.temporary(floats({count}));
        add_place(made, {roots_.size(), 0, count});
        roots_.emplace_back(static_cast<std::size_t>(count), 0.0f);
        return made;
    }

    int part(int of, std::int64_t first, std::int64_t count) {
        const int made = network_.view(of, floats({count}), first * 4);
        add_place(made, {place(of).root, place(of).first + first, count});
        return made;
    }

    // All of a new value, or the rest of one whose parts are written one after the other.
    int destination() {
        if (rest_ > 0) {
            const std::int64_t count = std::min(rest_, draw(1, 300));
            const int made = part(whole_, place(whole_).count - rest_, count);
            rest_ -= count;
            return made;
        }
        const int made = temporary(draw(1, 700));
        if (draw(0, 4) > 0) return made;
        whole_ = made;
        rest_ = place(made).count;
        return destination();
    }

    void add_step(std::int64_t number) {
        NetworkStep step{.kind = "sum", .label = std::to_string(number)};
        const int to = destination();
        for (std::int64_t i = draw(1, 3); i > 0; --i) step.reads.push_back(any_value());
        step.writes = {to};
        for (const int it : step.reads) {
            const bool is_alike = place(it).count == place(to).count;
            if (is_alike && draw(0, 1) == 0) step.replaced.push_back(it);
        }
        step.flops = static_cast<double>(draw(0, 3'900'000));
        step.alone = draw(0, 20) == 0;
        step.run = summing(step.reads, to, step.label);
        try {
            network_.add(step);
        } catch (const std::invalid_argument&) {
            return;  // it reads what it writes a part of
        }
        steps_.push_back(step);
        written_.push_back(to);
        if (draw(0, 3) == 0 && place(to).count > 1) {
            const std::int64_t first = draw(0, place(to).count - 1);
            written_.push_back(part(to, first, draw(1, place(to).count - first)));
        }
    }

    std::function<void(const Addresses&)> summing(const std::vector<int>& reads, int to,
                                                  const std::string& label) {
        std::vector<std::int64_t> counts;
        for (const int it : reads) counts.push_back(place(it).count);
        return [=, count = place(to).count, record = record_.get()](const Addresses& at) {
            std::vector<float> sums(static_cast<std::size_t>(count), 0.5f);
            for (std::size_t i = 0; i < reads.size(); ++i) {
                const float* const from = at[reads[i]];
                for (std::int64_t j = 0; j < count; ++j) {
                    sums[static_cast<std::size_t>(j)] =
                        sums[static_cast<std::size_t>(j)] * 0.75f + from[j % counts[i]];
                }
            }
            std::copy(sums.begin(), sums.end(), static_cast<float*>(at[to]));
            std::vector<Touched> touched{{at[to].data, at[to].data + count * 4, true}};
            for (std::size_t i = 0; i < reads.size(); ++i) {
                touched.push_back({at[reads[i]].data, at[reads[i]].data + counts[i] * 4, false});
            }
            const std::lock_guard lock(*guard_of_record());
            (*record)[label] = touched;
        };
    }

    static std::mutex* guard_of_record() {
        static std::mutex guard;
        return &guard;
    }

    std::vector<std::vector<float>> new_results() const {
        std::vector<std::vector<float>> made;
        for (const int it : results_) made.emplace_back(static_cast<std::size_t>(place(it).count));
        return made;
    }

    static std::vector<float> joined(const std::vector<std::vector<float>>& arrays) {
        std::vector<float> all;
        for (const auto& it : arrays) all.insert(all.end(), it.begin(), it.end());
        return all;
    }

    std::mt19937 random_;
    Network network_;
    std::vector<NetworkStep> steps_;
    std::vector<Place> places_;              // of all values
    std::vector<std::vector<float>> roots_;  // inputs, and zeros
    std::vector<std::vector<float>> inputs_;
    std::vector<int> written_;
    std::vector<int> results_;
    int whole_ = -1;  // what parts are written of, and how many elements of it are left
    std::int64_t rest_ = 0;
    std::unique_ptr<Record> record_ = std::make_unique<Record>();
};

// How many pairs of steps of different branches touch what one of them writes.
int collisions(const DrawnNetwork& drawn) {
    const std::vector<std::string> order = drawn.order();
    const auto touched = [&](std::int64_t step) -> const std::vector<Touched>& {
        return drawn.record()[order[static_cast<std::size_t>(step)]];
    };
    int count = 0;
    const auto compare = [&](std::int64_t one, std::int64_t other) {
        for (const Touched& here : touched(one)) {
            for (const Touched& there : touched(other)) count += here.collides(there) ? 1 : 0;
        }
    };
    for (const Stretch& stretch : drawn.network().stretches()) {
        for (const Range& branch : stretch.branches) {
            for (std::int64_t i = branch.begin; i < branch.end; ++i) {
                for (std::int64_t j = stretch.steps().begin; j < branch.begin; ++j) compare(i, j);
            }
        }
    }
    return count;
}

// Two branches of steps of their own, of which one writes `wrong`.
void add_branches(Network& network, std::vector<int>& results, const std::string& wrong) {
    const int x = network.input(floats({8}));
    for (const std::string name : {"left", "right"}) {
        int value = x;
        for (int i = 0; i < 2; ++i) {
            const int next = network.temporary(floats({8}));
            network.add({.kind = "copy",
                         .label = name,
                         .reads = {value},
                         .writes = {next},
                         .flops = 3e6,
                         .run = [=](const Addresses& at) {
                             if (name == wrong) throw std::out_of_range("it is wrong");
                             std::copy_n(static_cast<const float*>(at[value]), 8,
                                         static_cast<float*>(at[next]));
                         }});
            value = next;
        }
        results.push_back(value);
    }
}

class Threads {
public:
    explicit Threads(int count) { set_num_threads(count); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;
    ~Threads() { set_num_threads(before_); }

private:
    int before_ = num_threads();
};

}  // namespace

TEST_CASE("drawn networks are the same bits with branches side by side, on any number of threads") {
    std::size_t stretches = 0;
    double waste = 0;
    constexpr int kTrials = 100;
    for (unsigned seed = 0; seed < kTrials; ++seed) {
        CAPTURE(seed);
        const DrawnNetwork drawn(seed);
        const Network& network = drawn.network();
        stretches += network.stretches().size();
        const std::vector<float> expected = drawn.expected();
        for (const int threads : {1, 2, 3, 4}) {
            const Threads used(threads);
            CAPTURE(threads);
            CHECK(drawn.run() == expected);
            if (threads == 1) CHECK(collisions(drawn) == 0);
        }
        const auto least = static_cast<double>(std::max<std::int64_t>(network.live_bytes(), 1));
        waste += static_cast<double>(std::max<std::int64_t>(network.planned_bytes(), 1)) / least;
    }
    CHECK(stretches > kTrials);
    CHECK(waste / kTrials <= 1.1);
}

TEST_CASE("what goes wrong in a branch says in which step, and the next run is right") {
    const Threads used(2);
    for (const std::string wrong : {"left", "right"}) {
        Network network;
        std::vector<int> results;
        add_branches(network, results, wrong);
        network.finish(results);
        REQUIRE(network.stretches().size() == 1);
        CHECK(network.described().find("2 branches that run side by side:\n  1 | ") !=
              std::string::npos);
        const std::vector<float> x(8, 3);
        std::vector<float> one(8), other(8);
        CHECK_THROWS_WITH_AS(network.run({{x.data()}, {one.data(), other.data()}}),
                             ("in step " + wrong + " (copy): it is wrong").c_str(),
                             std::out_of_range);
    }
    Network network;
    std::vector<int> results;
    add_branches(network, results, "");
    network.finish(results);
    const std::vector<float> x(8, 3);
    std::vector<float> one(8), other(8);
    network.run({{x.data()}, {one.data(), other.data()}});
    CHECK(one == x);
    CHECK(other == x);
}

TEST_CASE("branches do not share memory where a chain would") {
    Network network;
    std::vector<int> results;
    add_branches(network, results, "");
    network.finish({results[0]});
    // The first value of either branch, and the last one of the branch that is no result.
    CHECK(network.live_bytes() == 3 * 64);
    CHECK(network.planned_bytes() == 3 * 64);
}
