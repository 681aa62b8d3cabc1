// The networks of a section of a model, by what its inputs look like: extents, types, the elements
// of those that shapes follow from, and whether an input is the model's own value. Only what is not
// found here goes up to Python, which compiles a network and adds it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/graph/network.h"

namespace dlprim::bindings {

// An input of a section: an array, or each row of one.
struct SeenInput {
    py::handle value = {};
    bool in_rows = false;
};

class KnownNetworks {
public:
    struct Known {
        py::object graph = {};  // which keeps the network
        const PyNetwork* network = nullptr;
        std::vector<std::size_t> reads = {};  // of the inputs those that it takes
        py::object looped = {};               // what runs it in a loop; null until it is asked for
    };

    // Keeps so many. Inputs at the places of `defaults` are told from these arrays.
    KnownNetworks(std::size_t most, std::vector<std::pair<std::size_t, py::object>> defaults)
        : most_(most), defaults_(std::move(defaults)) {}

    // From here on elements of the inputs at these places decide, too.
    void ask(std::vector<std::size_t> places);
    void add(const py::sequence& inputs, py::object graph, std::vector<std::size_t> reads);

    // A null pointer where there is none.
    std::shared_ptr<Known> find(const std::vector<SeenInput>& inputs) const;
    // Whether there is one for these, of which all lie in C order; writes its results.
    bool run(const std::vector<SeenInput>& inputs, std::vector<py::object>& results);

    // The graph of what ran last, or None.
    const py::object& latest() const { return latest_; }
    void ran(const py::object& graph) { latest_ = graph; }

private:
    bool runs(const Known& it, const std::vector<SeenInput>& inputs,
              std::vector<py::object>& results);
    // False where something is no array, or too many elements decide.
    bool write_key(const std::vector<SeenInput>& inputs, std::string& key) const;

    std::size_t most_;
    std::vector<std::pair<std::size_t, py::object>> defaults_;
    std::vector<std::size_t> asked_ = {};
    std::unordered_map<std::string, std::shared_ptr<Known>> known_ = {};
    py::object latest_ = py::none();
    // What ran last, where it reads all inputs and nothing but their extents and types decides, so
    // that its own look at them is enough.
    std::shared_ptr<Known> last_ = {};
};

}  // namespace dlprim::bindings
