// Row programs by name on arrays that Python's functions have checked: what is checked here again
// is only what keeps a mistake there from touching foreign memory.
#include "primitives/programs/row_programs.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/arrays/array.h"
#include "bindings/register.h"
#include "primitives/programs/row_tasks.h"

namespace dlprim::bindings {
namespace {

class RowProgram {
public:
    RowProgram(const std::string& name, const std::string& dtype)
        : kernel_(row_kernel(row_program(name, parse_dtype(dtype)))) {}

    // Operands in their order: arrays, and numbers for scalars.
    void run(std::int64_t rows, std::int64_t columns, const py::tuple& operands) const {
        const std::vector<RowOperand>& expected = kernel_->spec().operands;
        if (operands.size() != expected.size()) throw std::logic_error("operands are missing");
        RowArgs args{.rows = rows, .columns = columns};
        std::array<float, kMostRowOperands> numbers{};
        for (std::size_t i = 0; i < expected.size(); ++i) {
            RowArgs::Operand& it = args.operands.at(i);
            if (expected[i].shape == RowShape::scalar) {
                numbers.at(i) = py::cast<float>(operands[i]);
                it.data = &numbers.at(i);
                continue;
            }
            const auto array = py::cast<py::array>(operands[i]);
            const std::int64_t width = expected[i].shape == RowShape::row ? 1 : columns;
            const std::int64_t count = width * (expected[i].shape == RowShape::column ? 1 : rows);
            const bool fits = array.size() == count &&
                              array.itemsize() == size_of(expected[i].dtype) &&
                              (array.flags() & py::array::c_style) != 0 &&
                              (!expected[i].written || array.writeable());
            if (!fits) throw std::logic_error("an operand does not fit its program");
            it = {const_cast<void*>(array.data()), width * size_of(expected[i].dtype)};
        }
        const py::gil_scoped_release without_gil;
        run_rows(*kernel_, args);
    }

private:
    std::shared_ptr<const RowKernel> kernel_;
};

}  // namespace

void register_row_programs(py::module_& module) {
    py::class_<RowProgram>(module, "RowProgram")
        .def(py::init<const std::string&, const std::string&>(), py::arg("name"), py::arg("dtype"))
        .def("run", &RowProgram::run, py::arg("rows"), py::arg("columns"), py::arg("operands"));
    module.def("row_program_names", row_program_names);
}

}  // namespace dlprim::bindings
