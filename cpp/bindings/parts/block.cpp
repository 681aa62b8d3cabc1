#include "bindings/parts/block.h"

#include <tuple>

#include <pybind11/stl.h>

#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

Piece piece_of(const py::dict& it) {
    Piece made{.runner = it["runner"],
               .inputs = it["inputs"].cast<std::vector<int>>(),
               .outputs = it["outputs"].cast<std::vector<int>>(),
               .done = it["done"].cast<std::vector<int>>()};
    if (it.contains("networks")) {
        made.networks = it["networks"].cast<KnownNetworks*>();
        return made;
    }
    made.function = it["function"].is_none() ? py::object() : py::object(it["function"]);
    for (const py::handle body : it["bodies"]) made.bodies.push_back(body.cast<PartBlock*>());
    made.constants = it["constants"].cast<std::vector<std::pair<int, py::object>>>();
    made.takes_texts = it["takes_texts"].cast<std::vector<bool>>();
    made.takes_lists = it["takes_lists"].cast<bool>();
    return made;
}

}  // namespace

void PartBlock::set_plan(const py::sequence& pieces,
                         std::vector<std::pair<int, py::object>> outputs, std::size_t values,
                         std::pair<bool, int> is_network_and_turn) {
    auto made = std::make_shared<BlockPlan>();
    for (const py::handle it : pieces) made->pieces.push_back(piece_of(it.cast<py::dict>()));
    made->outputs = std::move(outputs);
    for (auto& [value, constant] : made->outputs) {
        if (constant.is_none()) constant = py::object();
    }
    made->values = values;
    std::tie(made->is_network, made->turn) = is_network_and_turn;
    plan_ = std::move(made);
}

void register_part_blocks(py::module_& module) {
    py::class_<PartBlock>(module, "PartBlock")
        .def(py::init<py::object, std::vector<int>>(), py::arg("block"), py::arg("inputs"))
        .def("set_plan", &PartBlock::set_plan, py::arg("pieces"), py::arg("outputs"),
             py::arg("values"), py::arg("is_network_and_turn"))
        .def("forget", &PartBlock::forget);
}

}  // namespace dlprim::bindings
