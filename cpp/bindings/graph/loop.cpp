// Loops around a network, in one call from Python.
#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/arrays/without_gil.h"
#include "bindings/graph/network.h"
#include "bindings/register.h"
#include "graph/repeat_step.h"

namespace dlprim::bindings {
namespace {

// Loops of Python look for interrupts between calls.
constexpr double kSeconds = 0.05;

LoopedBody::Feed feed_named(const std::string& name) {
    using Feed = LoopedBody::Feed;
    const std::array<std::pair<const char*, Feed>, 5> known{{{"fixed", Feed::fixed},
                                                             {"number", Feed::number},
                                                             {"condition", Feed::condition},
                                                             {"state", Feed::state},
                                                             {"row", Feed::row}}};
    for (const auto& [text, feed] : known) {
        if (name == text) return feed;
    }
    throw py::value_error("an input of a loop's body is '" + name + "'");
}

char* data_of(const py::handle& array) {
    return static_cast<char*>(py::detail::array_proxy(array.ptr())->data);
}

class PyLoop {
public:
    using Kept = std::vector<std::pair<bool, int>>;

    PyLoop(const PyNetwork& network, const std::vector<std::pair<std::string, int>>& feeds,
           const std::vector<int>& carried, int condition, const Kept& kept)
        : network_(network),
          body_{.body = network.core(), .carried = carried, .condition = condition, .kept = kept} {
        for (const auto& [name, place] : feeds) body_.feeds.emplace_back(feed_named(name), place);
        require_fit();
    }

    // Arrays are (fixed, states, rows, kept), runs are (first, count, whether the condition holds).
    // Gives the number of the next run, whether the condition holds, and the states; None where
    // arrays are not just what the body takes.
    py::object run(const std::array<py::tuple, 4>& given,
                   const std::tuple<std::int64_t, std::int64_t, bool>& runs) const {
        const auto& [fixed, states, rows, kept] = given;
        const auto [first, count, holds] = runs;
        if (!takes(given, first + count)) return py::none();
        LoopArrays arrays;
        for (const py::handle it : fixed) arrays.fixed.push_back(data_of(it));
        for (const py::handle it : states) arrays.states.push_back(data_of(it));
        for (const py::handle it : rows) arrays.rows.push_back(data_of(it));
        for (std::size_t i = 0; i < kept.size(); ++i) {
            arrays.kept.push_back(data_of(kept[i]));
            arrays.kept_bytes.push_back(body_.body.tensor(kept_value(i)).bytes());
        }
        const py::list made = new_results(arrays);
        LoopRuns end{.first = first, .count = count, .holds = holds, .seconds = kSeconds};
        {
            const WithoutGil without_gil;
            end = run_looped(body_, arrays, end);
        }
        return py::make_tuple(end.first, end.holds, last_states(states, end, made));
    }

private:
    static std::size_t at(int place) { return static_cast<std::size_t>(place); }

    void require_fit() const {
        const auto is_result = [&](int it) { return it < static_cast<int>(results().size()); };
        const auto has = [&](int value, const char* dtype) {
            const NetworkTensor& tensor = body_.body.tensor(value);
            return tensor.dtype == dtype && tensor.elements() == 1;
        };
        bool fits = body_.feeds.size() == body_.body.inputs().size() &&
                    is_result(body_.condition) && !body_.body.has_states();
        fits = fits && (body_.condition < 0 || has(results()[at(body_.condition)], "bool"));
        for (std::size_t i = 0; fits && i < body_.feeds.size(); ++i) {
            const LoopedBody::Feed feed = body_.feeds[i].first;
            const int value = body_.body.inputs()[i];
            fits = feed == LoopedBody::Feed::number      ? has(value, "int64")
                   : feed == LoopedBody::Feed::condition ? has(value, "bool")
                                                         : true;
        }
        for (const int it : body_.carried) fits = fits && is_result(it);
        for (const auto& [of_results, place] : body_.kept) {
            fits = fits && place >= 0 && (of_results ? is_result(place) : state_input(place) >= 0);
        }
        if (!fits) throw py::value_error("the body of a loop has other inputs and results");
    }

    const std::vector<int>& results() const { return body_.body.results(); }

    // The value of the body that reads a state.
    int state_input(int place) const {
        for (std::size_t i = 0; i < body_.feeds.size(); ++i) {
            if (body_.feeds[i] == std::pair(LoopedBody::Feed::state, place)) {
                return body_.body.inputs()[i];
            }
        }
        return -1;
    }

    int kept_value(std::size_t i) const {
        const auto& [is_result, place] = body_.kept[i];
        return is_result ? results()[at(place)] : state_input(place);
    }

    bool takes(const std::array<py::tuple, 4>& given, std::int64_t last) const {
        const auto& [fixed, states, rows, kept] = given;
        if (states.size() != body_.carried.size() || kept.size() != body_.kept.size()) return false;
        for (std::size_t i = 0; i < body_.feeds.size(); ++i) {
            using Feed = LoopedBody::Feed;
            const auto& [feed, place] = body_.feeds[i];
            if (feed == Feed::number || feed == Feed::condition) continue;
            const py::tuple& list = feed == Feed::fixed   ? fixed
                                    : feed == Feed::state ? states
                                                          : rows;
            if (at(place) >= list.size()) return false;
            const py::object one = list[at(place)];
            const bool fits = feed == Feed::row ? has_rows(one, body_.body.inputs()[i], last)
                                                : network_.takes(i, one);
            if (!fits) return false;
        }
        for (std::size_t i = 0; i < body_.carried.size(); ++i) {
            const int from = body_.carried[i];
            const int own = state_input(static_cast<int>(i));
            // A state that nobody reads is any array.
            if (own < 0 && !py::isinstance<py::array>(states[i])) return false;
            if (own >= 0 && from >= 0 && !is_alike(own, results()[at(from)])) return false;
        }
        for (std::size_t i = 0; i < kept.size(); ++i) {
            if (!has_rows(kept[i], kept_value(i), last)) return false;
        }
        return true;
    }

    bool is_alike(int one, int other) const {
        return body_.body.tensor(one).shape == body_.body.tensor(other).shape &&
               body_.body.tensor(one).dtype == body_.body.tensor(other).dtype;
    }

    // An array in C order with at least so many of a value as rows.
    bool has_rows(const py::object& given, int value, std::int64_t count) const {
        if (!py::isinstance<py::array>(given)) return false;
        const auto array = py::reinterpret_borrow<py::array>(given);
        const std::vector<std::int64_t>& shape = body_.body.tensor(value).shape;
        const auto rank = static_cast<py::ssize_t>(shape.size());
        const int needed = int{py::array::c_style} | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
        return array.dtype().equal(network_.dtype(value)) && array.ndim() == rank + 1 &&
               std::equal(shape.begin(), shape.end(), array.shape() + 1) &&
               (array.flags() & needed) == needed && array.shape(0) >= count;
    }

    py::list new_results(LoopArrays& arrays) const {
        py::list made;
        for (const int value : results()) {
            std::array<char*, 2> places{};
            for (char*& place : places) {
                const py::object array =
                    new_array({.shape = body_.body.tensor(value).shape}, network_.dtype(value));
                place = data_of(array);
                made.append(array);
            }
            arrays.results.push_back(places);
        }
        return made;
    }

    py::tuple last_states(const py::tuple& states, const LoopRuns& end,
                          const py::list& made) const {
        py::tuple last(states.size());
        const auto turn = static_cast<std::size_t>((end.first + 1) % 2);
        for (std::size_t i = 0; i < states.size(); ++i) {
            const int from = body_.carried[i];
            const bool stays = from < 0 || end.count == 0;
            last[i] = stays ? py::object(states[i]) : py::object(made[2 * at(from) + turn]);
        }
        return last;
    }

    const PyNetwork& network_;
    LoopedBody body_;
};

}  // namespace

void register_loops(py::module_& module) {
    py::class_<PyLoop>(module, "Loop")
        .def(py::init<const PyNetwork&, const std::vector<std::pair<std::string, int>>&,
                      const std::vector<int>&, int, const PyLoop::Kept&>(),
             py::keep_alive<1, 2>(), py::arg("network"), py::arg("feeds"), py::arg("carried"),
             py::arg("condition"), py::arg("kept"))
        .def("run", &PyLoop::run, py::arg("arrays"), py::arg("runs"));
}

}  // namespace dlprim::bindings
