// A definition as plain values of Python, for what generates code there (dlprim.gpu): its
// statements as trees, with how far every index goes once shapes are known. Users never see them.
#include <string>

#include <pybind11/stl.h>

#include "bindings/register.h"
#include "lang/check.h"
#include "lang/definition.h"
#include "lang/expression.h"
#include "lang/ranges.h"

namespace dlprim::bindings {
namespace {

namespace py = pybind11;

// (kind, number or name, may_lie_outside, operands). Statements that are too deep for the stack
// were refused when they were checked.
py::tuple tree_of(const Expression& it) {
    const auto operands = [&] {
        py::tuple made(it.operands.size());
        for (std::size_t i = 0; i < it.operands.size(); ++i) made[i] = tree_of(it.operands[i]);
        return made;
    };
    const auto made = [&](const char* kind, const py::object& value) {
        return py::make_tuple(kind, value, it.may_lie_outside, operands());
    };
    switch (it.kind) {
        case Expression::Kind::number:
            if (it.is_integer) return made("number", py::int_(static_cast<long long>(it.number)));
            return made("number", py::float_(it.number));
        case Expression::Kind::name: return made("name", py::str(it.name));
        case Expression::Kind::read: return made("read", py::str(it.name));
        case Expression::Kind::call: break;
    }
    return made("call", py::str(it.name));
}

const char* name_of(Reduction reduction) {
    switch (reduction) {
        case Reduction::none: return "";
        case Reduction::sum: return "sum";
        case Reduction::product: return "product";
        case Reduction::largest: return "max";
        case Reduction::smallest: break;
    }
    return "min";
}

// (target, reduction, whether it begins anew, value, ((index, extent, is reduced), ..)).
py::tuple statement_of(const Statement& it, const std::vector<IndexRange>& ranges) {
    py::tuple indices(ranges.size());
    for (std::size_t i = 0; i < ranges.size(); ++i)
        indices[i] = py::make_tuple(ranges[i].name, ranges[i].extent, ranges[i].reduced);
    return py::make_tuple(tree_of(it.target), name_of(it.reduction), it.initializes,
                          tree_of(it.value), indices);
}

// The statements, and by their names all shapes and sizes.
py::tuple bound_trees(const Definition& definition, const Shapes& shapes, const Constants& given) {
    const Ranges ranges = ranges_of(definition, checked(definition), shapes, given);
    py::tuple statements(definition.statements.size());
    for (std::size_t i = 0; i < definition.statements.size(); ++i)
        statements[i] = statement_of(definition.statements[i], ranges.statements[i]);
    return py::make_tuple(statements, ranges.shapes, ranges.sizes);
}

}  // namespace

void register_definition_trees(py::module_& module) {
    module.def("bound_trees", &bound_trees, py::arg("definition"), py::arg("shapes"),
               py::arg("given"));
}

}  // namespace dlprim::bindings
