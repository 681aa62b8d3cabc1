#include "bindings/parts/repeat.h"

#include <algorithm>
#include <string>

#include <pybind11/stl.h>

#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

// In one call of the core, which ends before in any case.
constexpr std::int64_t kMostAtOnce = std::int64_t{1} << 30;

class Repetition {
public:
    Repetition(PartsRun& run, PartBlock& body, const py::object& condition, Objects states,
               Objects rows)
        : run_(run),
          body_(body),
          condition_(condition),
          is_loop_(!condition.is_none()),
          states_(std::move(states)),
          rows_(std::move(rows)) {}

    py::tuple all(std::optional<std::int64_t> most, std::int64_t max_bytes) {
        make_kept(most, max_bytes);
        std::int64_t place = 0;
        while ((!is_loop_ || is_true(condition_)) && (!most || place < *most)) {
            if (PyErr_CheckSignals() != 0) throw py::error_already_set();
            if (!run_ahead(place, most)) run_once(place++);
        }
        py::list made;
        for (const KeptRows& it : kept_) made.append(it.array());
        return py::make_tuple(py::tuple(py::cast(states_)), made);
    }

private:
    void make_kept(std::optional<std::int64_t> most, std::int64_t max_bytes) {
        const std::size_t outputs = run_.plan_of(body_)->outputs.size();
        const std::size_t carried = states_.size() + (is_loop_ ? 1 : 0);
        kept_.assign(outputs - std::min(outputs, carried), KeptRows(max_bytes, most));
    }

    // Of a loop its number and condition are in front.
    std::size_t front() const { return is_loop_ ? 2 : 0; }

    void run_once(std::int64_t place) {
        Objects given;
        if (is_loop_) given = {number(place), condition_};
        given.insert(given.end(), states_.begin(), states_.end());
        for (const py::object& it : rows_) {
            given.push_back(it.attr("__getitem__")(py::make_tuple(place, py::ellipsis())));
        }
        const Objects results = run_.body(body_, given);
        std::size_t next = 0;
        if (is_loop_) condition_ = results.at(next++);
        for (py::object& it : states_) it = results.at(next++);
        for (KeptRows& it : kept_) it.add(results.at(next++));
    }

    // False where the body is more than a network, or has none for these arrays yet.
    bool run_ahead(std::int64_t& place, std::optional<std::int64_t> most) {
        const std::shared_ptr<const BlockPlan> plan = run_.plan_of(body_);
        if (plan->pieces.size() != 1 || run_.is_observed()) return false;
        const Piece& piece = plan->pieces[0];
        if (piece.networks == nullptr) return false;
        const std::shared_ptr<KnownNetworks::Known> known = known_for(piece);
        if (!known) return false;
        if (!known->looped) {
            known->looped =
                run_.owner().attr("looped")(body_.block(), known->graph, is_loop_, states_.size());
        }
        if (known->looped.is_none()) return false;
        const auto [loop, looks, fixed] =
            known->looped.cast<std::tuple<py::object, py::list, std::vector<int>>>();
        PyLoop::Given given{.states = states_, .rows = rows_};
        std::int64_t count = most.value_or(place + kMostAtOnce);
        if (looks.size() != kept_.size()) return false;
        for (std::size_t i = 0; i < kept_.size(); ++i) {
            const auto [shape, dtype] = looks[i].cast<std::pair<Shape, py::dtype>>();
            const std::optional<py::array> room = kept_[i].room(shape, dtype);
            if (!room) return false;
            count = std::min<std::int64_t>(count, room->shape(0));
            given.kept.push_back(*room);
        }
        for (const int it : fixed) given.fixed.push_back(run_.at(it));
        const auto end = loop.cast<const PyLoop&>().run(given, place, count - place);
        if (!end) return false;
        piece.networks->ran(known->graph);
        place = end->next;
        for (KeptRows& it : kept_) it.has(place);
        states_ = end->states;
        if (is_loop_) set_condition(end->holds);
        return true;
    }

    std::shared_ptr<KnownNetworks::Known> known_for(const Piece& piece) const {
        static const py::object* const nothing = new py::object(py::none());
        const std::vector<int>& own = body_.inputs();
        // A number and a condition that no network was made for look like any other.
        Objects held;
        std::vector<SeenInput> seen;
        for (const int value : piece.inputs) {
            const auto found = std::find(own.begin(), own.end(), value);
            if (found == own.end()) {
                seen.push_back({run_.at(value) ? run_.at(value) : *nothing});
                continue;
            }
            const auto place = static_cast<std::size_t>(found - own.begin());
            if (place < front()) {
                held.push_back(place == 0 ? number(0) : condition_);
                seen.push_back({held.back()});
            } else if (place - front() < states_.size()) {
                seen.push_back({states_[place - front()]});
            } else {
                seen.push_back({rows_.at(place - front() - states_.size()), true});
            }
        }
        return piece.networks->find(seen);
    }

    static py::object number(std::int64_t place) {
        return py::array_t<std::int64_t>(std::vector<py::ssize_t>{}, &place);
    }

    void set_condition(bool holds) {
        const auto like = py::reinterpret_borrow<py::array>(condition_);
        const Shape shape(like.shape(), like.shape() + like.ndim());
        condition_ = new_array({.shape = shape}, py::dtype::of<bool>());
        *static_cast<bool*>(py::reinterpret_borrow<py::array>(condition_).mutable_data()) = holds;
    }

    PartsRun& run_;
    PartBlock& body_;
    py::object condition_;
    bool is_loop_;
    Objects states_;
    Objects rows_;
    std::vector<KeptRows> kept_ = {};
};

}  // namespace

py::list StepBodies::run(const py::sequence& inputs) const {
    return list_of(run_->body(*bodies_.at(0), objects_of(inputs)));
}

py::tuple StepBodies::choose(const py::object& condition) const {
    return list_of(run_->body(*bodies_.at(is_true(condition) ? 0 : 1), {}));
}

py::tuple StepBodies::repeat(const py::object& condition, const py::sequence& states,
                             const py::sequence& rows, std::optional<std::int64_t> most,
                             std::int64_t max_bytes) const {
    Repetition made(*run_, *bodies_.at(0), condition, objects_of(states), objects_of(rows));
    return made.all(most, max_bytes);
}

void register_step_bodies(py::module_& module) {
    py::class_<StepBodies>(module, "StepBodies")
        .def("run", &StepBodies::run, py::arg("inputs"))
        .def("choose", &StepBodies::choose, py::arg("condition"))
        .def("repeat", &StepBodies::repeat, py::arg("condition"), py::arg("states"),
             py::arg("rows"), py::arg("most"), py::arg("max_bytes"));
}

}  // namespace dlprim::bindings
