// Row programs by name. Arrays that are as they should be, which is what nearly every call brings,
// are recognised here in a few comparisons; others Python's functions have converted and checked,
// and what is checked again is only what keeps a mistake there from touching foreign memory.
#include "primitives/programs/row_programs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/arrays/array.h"
#include "bindings/arrays/form.h"
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

    // What a program of float32 with one result makes of its other operands, along the last axis or
    // of all elements in one row. None where an array is of another kind, shape or order.
    py::object made(bool as_one_row, const py::args& given) const {
        const std::vector<RowOperand>& expected = kernel_->spec().operands;
        if (given.size() + 1 != expected.size() || expected.back().dtype != DType::f32) {
            return py::none();
        }
        const py::handle first = given[0];
        if (!is_plain(first)) return py::none();
        const auto like = py::reinterpret_borrow<py::array>(first);
        const std::int64_t columns = as_one_row ? like.size() : like.shape(like.ndim() - 1);
        RowArgs args{.rows = like.size() / columns, .columns = columns};
        std::array<float, kMostRowOperands> numbers{};
        for (std::size_t i = 0; i < given.size(); ++i) {
            if (expected[i].shape == RowShape::scalar) {
                numbers.at(i) = py::cast<float>(given[i]);
                args.operands.at(i).data = &numbers.at(i);
                continue;
            }
            const py::handle object = given[i];
            const bool is_column = expected[i].shape == RowShape::column;
            const bool is_read = expected[i].dtype == DType::f32 && !expected[i].written;
            if (!is_read || !is_plain(object)) return py::none();
            const auto array = py::reinterpret_borrow<py::array>(object);
            const bool fits = is_column ? array.ndim() == 1 && array.size() == columns
                                        : have_one_shape(array, like);
            if (!fits) return py::none();
            args.operands.at(i) = {const_cast<void*>(array.data()), columns * size_of(DType::f32)};
        }
        static const py::dtype& dtype = *new py::dtype(numpy_dtype(DType::f32));
        py::object result =
            new_array({DType::f32, Shape(like.shape(), like.shape() + like.ndim())}, dtype);
        args.operands.at(given.size()) = {py::reinterpret_borrow<py::array>(result).mutable_data(),
                                          columns * size_of(DType::f32)};
        {
            const py::gil_scoped_release without_gil;
            run_rows(*kernel_, args);
        }
        return result;
    }

private:
    // Of float32 and no subclass, contiguous, aligned, not empty.
    static bool is_plain(py::handle object) {
        const py::detail::npy_api& numpy = py::detail::npy_api::get();
        if (Py_TYPE(object.ptr()) != numpy.PyArray_Type_) return false;
        const auto array = py::reinterpret_borrow<py::array>(object);
        const int needed = int{py::array::c_style} | int{numpy.NPY_ARRAY_ALIGNED_};
        return (array.flags() & needed) == needed && array.ndim() > 0 && array.size() > 0 &&
               float_type_of(array) == DType::f32;
    }

    static bool have_one_shape(const py::array& one, const py::array& other) {
        return one.ndim() == other.ndim() &&
               std::equal(one.shape(), one.shape() + one.ndim(), other.shape());
    }

    std::shared_ptr<const RowKernel> kernel_;
};

}  // namespace

void register_row_programs(py::module_& module) {
    py::class_<RowProgram>(module, "RowProgram")
        .def(py::init<const std::string&, const std::string&>(), py::arg("name"), py::arg("dtype"))
        .def("made", &RowProgram::made, py::arg("as_one_row"))
        .def("run", &RowProgram::run, py::arg("rows"), py::arg("columns"), py::arg("operands"));
    module.def("row_program_names", row_program_names);
}

}  // namespace dlprim::bindings
