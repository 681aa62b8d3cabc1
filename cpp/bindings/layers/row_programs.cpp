// Row programs by name. Arrays that are as they should be, which is what nearly every call brings,
// are recognised here in a few comparisons; others Python's functions have converted and checked,
// and what is checked again is only what keeps a mistake there from touching foreign memory.
#include "primitives/programs/row_programs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/arrays/array.h"
#include "bindings/arrays/form.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/graph/network.h"
#include "bindings/register.h"
#include "primitives/programs/row_tasks.h"

namespace dlprim::bindings {
namespace {

struct RowExtents {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};

// Of a network.
struct RowStep {
    std::shared_ptr<const RowKernel> kernel;
    RowArgs args;
    std::array<float, kMostRowOperands> numbers{};
    std::array<int, kMostRowOperands> values{};

    void run(const Addresses& at) const {
        RowArgs of_run = args;
        for (std::size_t i = 0; i < kernel->spec().operands.size(); ++i) {
            const RowOperand& it = kernel->spec().operands[i];
            RowArgs::Operand& operand = of_run.operands.at(i);
            if (it.shape == RowShape::scalar) {
                operand.data = const_cast<float*>(&numbers.at(i));
                continue;
            }
            operand.data = at[values.at(i)];
            if (it.written && it.shape == RowShape::column) {
                std::memset(operand.data, 0,
                            static_cast<std::size_t>(args.columns * size_of(it.dtype)));
            }
        }
        run_rows(*kernel, of_run);
    }
};

class RowProgram {
public:
    explicit RowProgram(std::string name) : name_(std::move(name)) {}

    // Each is made when it is first asked for. Throws std::invalid_argument for other names.
    static RowProgram& named(std::string_view name) {
        static auto* const all = new std::map<std::string, RowProgram, std::less<>>;  // by the GIL
        auto found = all->find(name);
        if (found == all->end()) {
            const std::string own(name);
            static_cast<void>(row_program(own, DType::f32));
            found = all->emplace(own, RowProgram(own)).first;
        }
        return found->second;
    }

    // Operands in their order: arrays, and numbers for scalars.
    void run(const std::string& dtype, std::int64_t rows, std::int64_t columns,
             const py::tuple& operands) {
        const RowKernel& kernel = *this->kernel(parse_dtype(dtype));
        const std::vector<RowOperand>& expected = kernel.spec().operands;
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
        run_released(kernel, args);
    }

    // run() as a step of a network, on values; what it adds up of columns begins with zeros.
    void add_to(PyNetwork& network, const std::string& dtype, const RowExtents& extents,
                const py::sequence& operands, const std::string& label) {
        const std::shared_ptr<const RowKernel>& kernel = this->kernel(parse_dtype(dtype));
        const std::vector<RowOperand>& expected = kernel->spec().operands;
        if (operands.size() != expected.size()) {
            throw py::type_error(name_ + " was given " + std::to_string(operands.size()) +
                                 " operands, expected " + std::to_string(expected.size()));
        }
        NetworkStep step{.kind = name_, .label = label};
        RowStep made{.kernel = kernel, .args = {.rows = extents.rows, .columns = extents.columns}};
        for (std::size_t i = 0; i < expected.size(); ++i) {
            if (expected[i].shape == RowShape::scalar) {
                made.numbers.at(i) = py::object(operands[i]).cast<float>();
                continue;
            }
            const int value = py::object(operands[i]).cast<int>();
            made.values.at(i) = value;
            made.args.operands.at(i).stride =
                checked_row(network.core().tensor(value), expected[i], extents);
            (expected[i].written ? step.writes : step.reads).push_back(value);
            // Elements may be written where they were read, one after the other.
            const bool may_be_replaced = expected[i].shape == RowShape::tensor;
            if (may_be_replaced && !expected[i].written) step.replaced.push_back(value);
        }
        step.flops = row_operations(*kernel, made.args);
        step.run = [made](const Addresses& at) { made.run(at); };
        network.add(std::move(step));
    }

    // What the program makes of the operands that it reads, along the last axis or of all elements
    // in one row: a new array, or `out`, and behind it sums of columns, if any. None where an array
    // is of another kind, shape or order.
    py::object made(bool as_one_row, const py::object& out, const py::args& given) {
        const auto dtype = given.empty() ? std::nullopt : plain_type(given[0]);
        if (!dtype) return py::none();
        const RowKernel& kernel = *this->kernel(*dtype);
        const std::vector<RowOperand>& expected = kernel.spec().operands;
        const std::size_t count = given.size();
        const bool is_all =
            count < expected.size() && !expected[count - 1].written && expected[count].written;
        if (!is_all) throw std::logic_error("operands are missing");
        const auto like = py::reinterpret_borrow<py::array>(given[0]);
        const bool has_out = !out.is_none();
        if (has_out && !takes_result(out, like, expected[count].dtype)) return py::none();
        const std::int64_t columns = as_one_row ? like.size() : like.shape(like.ndim() - 1);
        RowArgs args{.rows = like.size() / columns, .columns = columns};
        std::array<float, kMostRowOperands> numbers{};
        for (std::size_t i = 0; i < count; ++i) {
            if (expected[i].shape == RowShape::scalar) {
                numbers.at(i) = py::cast<float>(given[i]);
                args.operands.at(i).data = &numbers.at(i);
                continue;
            }
            if (plain_type(given[i]) != expected[i].dtype) return py::none();
            const auto array = py::reinterpret_borrow<py::array>(given[i]);
            const bool is_column = expected[i].shape == RowShape::column;
            const bool fits = is_column ? array.ndim() == 1 && array.size() == columns
                                        : have_one_shape(array, like);
            if (!fits || (has_out && !may_be(out, array, is_column))) return py::none();
            args.operands.at(i) = operand_of(array, columns);
        }
        const Shape shape(like.shape(), like.shape() + like.ndim());
        const py::object result = has_out ? out : new_array({*dtype, shape}, like.dtype());
        args.operands.at(count) = operand_of(py::reinterpret_borrow<py::array>(result), columns);
        if (count + 1 == expected.size()) {
            run_released(kernel, args);
            return result;
        }
        py::tuple all(expected.size() - count);
        all[0] = result;
        for (std::size_t i = count + 1; i < expected.size(); ++i) {
            auto sums = py::reinterpret_steal<py::array>(
                new_array({DType::f32, {columns}}, numpy_dtype(DType::f32)).release());
            std::fill_n(static_cast<float*>(sums.mutable_data()), columns, 0.0F);
            args.operands.at(i) = operand_of(sums, columns);
            all[i - count] = sums;
        }
        run_released(kernel, args);
        return all;
    }

private:
    const std::shared_ptr<const RowKernel>& kernel(DType dtype) {
        std::shared_ptr<const RowKernel>& it = kernels_[dtype];
        if (it == nullptr) it = row_kernel(row_program(name_, dtype));
        return it;
    }

    // The bytes from row to row of a value that fits its program.
    std::int64_t checked_row(const NetworkTensor& tensor, const RowOperand& expected,
                             const RowExtents& extents) const {
        const std::int64_t width = expected.shape == RowShape::row ? 1 : extents.columns;
        const std::int64_t rows = expected.shape == RowShape::column ? 1 : extents.rows;
        const std::string type(name_of(expected.dtype));
        const bool has_type =
            tensor.dtype == type || (type == "bfloat16" && tensor.dtype == "uint16");
        if (has_type && tensor.elements() == rows * width && tensor.is_dense()) {
            return width * size_of(expected.dtype);
        }
        throw py::value_error("an operand of " + name_ + " is " + tensor.described() +
                              ", expected " + std::to_string(rows * width) + " elements of " +
                              type + " in C order");
    }

    static void run_released(const RowKernel& kernel, const RowArgs& args) {
        const WithoutGil without_gil;
        run_rows(kernel, args);
    }

    static RowArgs::Operand operand_of(const py::array& array, std::int64_t columns) {
        return {const_cast<void*>(array.data()), columns * array.itemsize()};
    }

    // Of an array and no subclass, contiguous, aligned, not empty; bits are no numbers.
    static std::optional<DType> plain_type(py::handle object) {
        const py::detail::npy_api& numpy = py::detail::npy_api::get();
        if (Py_TYPE(object.ptr()) != numpy.PyArray_Type_) return {};
        const auto array = py::reinterpret_borrow<py::array>(object);
        const int needed = int{py::array::c_style} | int{numpy.NPY_ARRAY_ALIGNED_};
        const bool fits =
            (array.flags() & needed) == needed && array.ndim() > 0 && array.size() > 0;
        if (!fits) return {};
        const std::optional<DType> dtype = float_type_of(array);
        if (!dtype || (*dtype == DType::bf16 && array.dtype().kind() == 'u')) return {};
        return *dtype;
    }

    static bool takes_result(py::handle out, const py::array& like, DType dtype) {
        if (plain_type(out) != dtype) return false;
        const auto array = py::reinterpret_borrow<py::array>(out);
        return array.writeable() && have_one_shape(array, like);
    }

    // Whether a result may be written there: on a tensor, or apart from an operand.
    static bool may_be(py::handle out, const py::array& operand, bool is_column) {
        const auto array = py::reinterpret_borrow<py::array>(out);
        const auto* const to = static_cast<const char*>(array.data());
        const auto* const from = static_cast<const char*>(operand.data());
        const bool apart = to + array.nbytes() <= from || from + operand.nbytes() <= to;
        return apart || (to == from && !is_column);
    }

    static bool have_one_shape(const py::array& one, const py::array& other) {
        return one.ndim() == other.ndim() &&
               std::equal(one.shape(), one.shape() + one.ndim(), other.shape());
    }

    std::string name_;
    std::map<DType, std::shared_ptr<const RowKernel>> kernels_;  // when asked for
};

}  // namespace

void register_row_programs(py::module_& module) {
    module.def(
        "made_by_rows",
        [](std::string_view program, bool as_one_row, const py::object& out,
           const py::args& given) {
            return RowProgram::named(program).made(as_one_row, out, given);
        },
        py::arg("program"), py::arg("as_one_row"), py::arg("out").none(true));
    module.def(
        "run_rows",
        [](std::string_view program, const std::string& dtype, std::int64_t rows,
           std::int64_t columns, const py::tuple& operands) {
            RowProgram::named(program).run(dtype, rows, columns, operands);
        },
        py::arg("program"), py::arg("dtype"), py::arg("rows"), py::arg("columns"),
        py::arg("operands"));
    network_type(module).def(
        "rows",
        [](PyNetwork& network, std::string_view program, const std::string& dtype,
           const std::pair<std::int64_t, std::int64_t>& extents, const py::sequence& operands,
           const std::string& label) {
            RowProgram::named(program).add_to(network, dtype, {extents.first, extents.second},
                                              operands, label);
        },
        py::arg("program"), py::arg("dtype"), py::arg("extents"), py::arg("operands"),
        py::arg("label") = "");
    module.def("row_program_names", row_program_names);
}

}  // namespace dlprim::bindings
