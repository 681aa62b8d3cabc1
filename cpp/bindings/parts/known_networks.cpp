#include "bindings/parts/known_networks.h"

#include <pybind11/stl.h>

#include "bindings/parts/objects.h"
#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

// Of elements by which a network is found again.
constexpr py::ssize_t kMostAsked = 256;

void append(std::string& key, const void* data, std::size_t bytes) {
    key.append(static_cast<const char*>(data), bytes);
}

}  // namespace

bool KnownNetworks::write_key(const std::vector<SeenInput>& inputs, std::string& key) const {
    for (const SeenInput& it : inputs) {
        if (!is_plain_array(it.value)) return false;
        const auto* const array = py::detail::array_proxy(it.value.ptr());
        const int first = it.in_rows ? 1 : 0;
        const int rank = array->nd - first;
        if (rank < 0) return false;
        const int type = py::detail::array_descriptor_proxy(array->descr)->type_num;
        const std::int64_t look = (std::int64_t{type} << 32) + rank;
        append(key, &look, sizeof look);
        append(key, array->dimensions + first,
               static_cast<std::size_t>(rank) * sizeof(py::ssize_t));
    }
    py::ssize_t left = kMostAsked;
    for (const std::size_t place : asked_) {
        const auto array = py::reinterpret_borrow<py::array>(inputs[place].value);
        left -= array.nbytes();
        if (left < 0 || inputs[place].in_rows || (array.flags() & py::array::c_style) == 0) {
            return false;
        }
        append(key, array.data(), static_cast<std::size_t>(array.nbytes()));
    }
    for (const auto& [place, array] : defaults_) {
        key.push_back(inputs[place].value.is(array) ? '1' : '0');
    }
    return true;
}

void KnownNetworks::ask(std::vector<std::size_t> places) {
    known_.clear();
    last_.reset();
    asked_ = std::move(places);
}

void KnownNetworks::add(const py::sequence& inputs, py::object graph,
                        std::vector<std::size_t> reads) {
    latest_ = graph;
    std::vector<py::object> held;
    std::vector<SeenInput> seen;
    for (const py::handle it : inputs) {
        held.push_back(py::reinterpret_borrow<py::object>(it));
        seen.push_back({it});
    }
    std::string key;
    if (!write_key(seen, key)) return;
    if (known_.size() >= most_) known_.clear();
    const auto& network = graph.attr("network").cast<const PyNetwork&>();
    known_[key] = std::make_shared<Known>(Known{std::move(graph), &network, std::move(reads)});
}

std::shared_ptr<KnownNetworks::Known> KnownNetworks::find(
    const std::vector<SeenInput>& inputs) const {
    std::string key;
    key.reserve(128);
    if (!write_key(inputs, key)) return nullptr;
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second;
}

bool KnownNetworks::run(const std::vector<SeenInput>& inputs, std::vector<py::object>& results) {
    if (const std::shared_ptr<Known> last = last_; last && runs(*last, inputs, results))
        return true;
    const std::shared_ptr<Known> found = find(inputs);
    if (!found || !runs(*found, inputs, results)) return false;
    const bool decides = asked_.empty() && defaults_.empty();
    last_ = decides && found->reads.size() == inputs.size() ? found : nullptr;
    return true;
}

bool KnownNetworks::runs(const Known& it, const std::vector<SeenInput>& inputs,
                         std::vector<py::object>& results) {
    std::vector<py::handle> arrays;
    arrays.reserve(it.reads.size());
    for (const std::size_t place : it.reads) arrays.push_back(inputs[place].value);
    if (!it.network->run_exact(arrays, results)) return false;
    latest_ = it.graph;
    return true;
}

void register_known_networks(py::module_& module) {
    py::class_<KnownNetworks>(module, "KnownNetworks")
        .def(py::init<std::size_t, std::vector<std::pair<std::size_t, py::object>>>(),
             py::arg("most"), py::arg("defaults"))
        .def("ask", &KnownNetworks::ask, py::arg("places"))
        .def("add", &KnownNetworks::add, py::arg("inputs"), py::arg("graph"), py::arg("reads"))
        .def(
            "run",
            [](KnownNetworks& it, const py::sequence& inputs) -> py::object {
                std::vector<py::object> held, results;
                std::vector<SeenInput> seen;
                for (const py::handle one : inputs) {
                    held.push_back(py::reinterpret_borrow<py::object>(one));
                    seen.push_back({one});
                }
                if (!it.run(seen, results)) return py::none();
                return py::cast(results);
            },
            py::arg("inputs"))
        .def("ran", &KnownNetworks::ran, py::arg("graph"))
        .def_property_readonly("latest", &KnownNetworks::latest);
}

}  // namespace dlprim::bindings
