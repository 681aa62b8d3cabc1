#include "bindings/parts/loop.h"

#include <algorithm>
#include <array>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "bindings/arrays/without_gil.h"
#include "bindings/register.h"

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

}  // namespace

PyLoop::PyLoop(const PyNetwork& network, const std::vector<std::pair<std::string, int>>& feeds,
               const std::vector<int>& carried, int condition, const Kept& kept)
    : network_(network),
      body_{.body = network.core(), .carried = carried, .condition = condition, .kept = kept} {
    for (const auto& [name, place] : feeds) body_.feeds.emplace_back(feed_named(name), place);
    require_fit();
}

std::optional<PyLoop::End> PyLoop::run(const Given& given, std::int64_t first,
                                       std::int64_t count) const {
    if (!takes(given, first + count)) return std::nullopt;
    LoopArrays arrays;
    const auto write = [](const Objects& from, std::vector<char*>& to) {
        for (const py::object& it : from) to.push_back(data_of(it));
    };
    write(given.fixed, arrays.fixed);
    write(given.states, arrays.states);
    write(given.rows, arrays.rows);
    write(given.kept, arrays.kept);
    for (std::size_t i = 0; i < given.kept.size(); ++i) {
        arrays.kept_bytes.push_back(body_.body.tensor(kept_value(i)).bytes());
    }
    const Objects made = new_results(arrays);
    LoopRuns end{.first = first, .count = count, .holds = true, .seconds = kSeconds};
    {
        const WithoutGil without_gil;
        end = run_looped(body_, arrays, end);
    }
    return End{end.first, end.holds, last_states(given.states, end, made)};
}

void PyLoop::require_fit() const {
    const auto is_result = [&](int it) { return it < static_cast<int>(results().size()); };
    const auto has = [&](int value, const char* dtype) {
        const NetworkTensor& tensor = body_.body.tensor(value);
        return tensor.dtype == dtype && tensor.elements() == 1;
    };
    bool fits = body_.feeds.size() == body_.body.inputs().size() && is_result(body_.condition) &&
                !body_.body.has_states();
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

// The value of the body that reads a state.
int PyLoop::state_input(int place) const {
    for (std::size_t i = 0; i < body_.feeds.size(); ++i) {
        if (body_.feeds[i] == std::pair(LoopedBody::Feed::state, place)) {
            return body_.body.inputs()[i];
        }
    }
    return -1;
}

int PyLoop::kept_value(std::size_t i) const {
    const auto& [is_result, place] = body_.kept[i];
    return is_result ? results()[at(place)] : state_input(place);
}

bool PyLoop::takes(const Given& given, std::int64_t last) const {
    const auto& [fixed, states, rows, kept] = given;
    if (states.size() != body_.carried.size() || kept.size() != body_.kept.size()) return false;
    for (std::size_t i = 0; i < body_.feeds.size(); ++i) {
        using Feed = LoopedBody::Feed;
        const auto& [feed, place] = body_.feeds[i];
        if (feed == Feed::number || feed == Feed::condition) continue;
        const Objects& list = feed == Feed::fixed ? fixed : feed == Feed::state ? states : rows;
        if (at(place) >= list.size()) return false;
        const py::object& one = list[at(place)];
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

bool PyLoop::is_alike(int one, int other) const {
    return body_.body.tensor(one).shape == body_.body.tensor(other).shape &&
           body_.body.tensor(one).dtype == body_.body.tensor(other).dtype;
}

// An array in C order with at least so many of a value as rows.
bool PyLoop::has_rows(const py::object& given, int value, std::int64_t count) const {
    if (!py::isinstance<py::array>(given)) return false;
    const auto array = py::reinterpret_borrow<py::array>(given);
    const std::vector<std::int64_t>& shape = body_.body.tensor(value).shape;
    const auto rank = static_cast<py::ssize_t>(shape.size());
    const int needed = int{py::array::c_style} | int{py::detail::npy_api::NPY_ARRAY_ALIGNED_};
    return array.dtype().equal(network_.dtype(value)) && array.ndim() == rank + 1 &&
           std::equal(shape.begin(), shape.end(), array.shape() + 1) &&
           (array.flags() & needed) == needed && array.shape(0) >= count;
}

Objects PyLoop::new_results(LoopArrays& arrays) const {
    Objects made;
    for (const int value : results()) {
        std::array<char*, 2> places{};
        for (char*& place : places) {
            made.push_back(
                new_array({.shape = body_.body.tensor(value).shape}, network_.dtype(value)));
            place = data_of(made.back());
        }
        arrays.results.push_back(places);
    }
    return made;
}

Objects PyLoop::last_states(const Objects& states, const LoopRuns& end, const Objects& made) const {
    Objects last;
    const auto turn = static_cast<std::size_t>((end.first + 1) % 2);
    for (std::size_t i = 0; i < states.size(); ++i) {
        const int from = body_.carried[i];
        const bool stays = from < 0 || end.count == 0;
        last.push_back(stays ? states[i] : made[2 * at(from) + turn]);
    }
    return last;
}

void register_loops(py::module_& module) {
    py::class_<PyLoop>(module, "Loop")
        .def(py::init<const PyNetwork&, const std::vector<std::pair<std::string, int>>&,
                      const std::vector<int>&, int, const PyLoop::Kept&>(),
             py::keep_alive<1, 2>(), py::arg("network"), py::arg("feeds"), py::arg("carried"),
             py::arg("condition"), py::arg("kept"));
}

}  // namespace dlprim::bindings
