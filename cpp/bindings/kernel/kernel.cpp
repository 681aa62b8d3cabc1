#include "bindings/kernel/kernel.h"

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings/arrays/without_gil.h"
#include "bindings/register.h"
#include "moves/move_kernel.h"
#include "panels/panel_kernel.h"
#include "rows/row_kernel.h"
#include "streams/stream_kernel.h"

namespace dlprim::bindings {
namespace {

// The request as Python's Brgemm passes it on: a dictionary with every field, integers checked,
// defaults resolved, None spelled "none".
BrgemmSpec spec_of(const py::dict& request) {
    const auto integer = [&](const char* name) { return request[name].cast<std::int64_t>(); };
    const auto flag = [&](const char* name) { return request[name].cast<bool>(); };
    const auto text = [&](const char* name) { return request[name].cast<std::string>(); };
    return {.m = integer("m"),
            .n = integer("n"),
            .k = integer("k"),
            .lda = integer("lda"),
            .ldb = integer("ldb"),
            .ldc = integer("ldc"),
            .a_type = parse_dtype(text("a_type")),
            .b_type = parse_dtype(text("b_type")),
            .c_type = parse_dtype(text("c_type")),
            .trans_a = flag("trans_a"),
            .beta = request["beta"].cast<int>(),
            .addressing = parse_addressing(text("addressing")),
            .zero_point_a = flag("zero_point_a"),
            .zero_point_b = flag("zero_point_b"),
            .epilogue = {.scale = parse_scale(text("scale")),
                         .bias = flag("bias"),
                         .residual = flag("residual"),
                         .activation = parse_activation(text("activation")),
                         .relu_mask = flag("relu_mask")}};
}

Isa isa_argument(const std::string& name) {
    try {
        return parse_isa(name);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(std::string("isa: ") + error.what());
    }
}

std::unique_ptr<Kernel> make_kernel(const py::dict& request) {
    const BrgemmSpec spec = spec_of(request);
    const Isa isa = isa_argument(request["isa"].cast<std::string>());
    const WithoutGil without_gil;
    return std::make_unique<Kernel>(spec, isa);
}

py::bytes code_of(const Kernel& kernel) {
    const auto code = kernel.brgemm_kernel().code();
    return {reinterpret_cast<const char*>(code.data()), code.size()};
}

py::tuple tile_of(const Kernel& kernel) {
    const Tile tile = kernel.brgemm_kernel().plan().main_tile();
    return py::make_tuple(tile.rows, tile.vectors);
}

py::dict cache_info() {
    const CacheInfo info = kernel_cache_info(), programs = row_cache_info();
    py::dict result;
    result["entries"] = info.entries;
    result["bytes"] = info.bytes;
    result["mapped_bytes"] = mapped_code_bytes();
    result["hits"] = info.hits;
    result["misses"] = info.misses;
    result["evictions"] = info.evictions;
    result["max_entries"] = info.max_entries;
    result["max_bytes"] = info.max_bytes;
    result["row_programs"] = programs.entries;
    result["row_program_bytes"] = programs.bytes;
    result["generated"] = kernel_code_info().misses + programs.misses + move_cache_info().misses +
                          stream_cache_info().misses + panel_cache_info().misses;
    return result;
}

// The first line is what inspect.signature reads.
constexpr const char* kCallDocumentation =
    R"(__call__($self, a, b, c, *, batch=None, stride_a=None, stride_b=None, offsets_a=None, offsets_b=None, bias=None, scale=None, residual=None, relu_mask=None, zero_point_a=None, zero_point_b=None)
--

Compute C in place.

Parameters
----------
a, b : array of the kernel's dtypes
    (batch, m, k) and (batch, k, n), or one matrix; rows lda or ldb elements apart. Where B (or a
    transposed A) is packed: (batch, ceil(k/g), n, g), as dlprim.pack_b makes it. With an explicit
    stride or offsets, any C-contiguous array that holds all matrices. With addressing="address",
    lists of matrices.
c : array of out_dtype, (m, n)
    Rows ldc elements apart; overlaps no operand.
batch : int, optional
    How many pairs to sum; by default as many as a and b hold.
stride_a, stride_b : int, optional
    Bytes from one matrix to the next (addressing="stride").
offsets_a, offsets_b : array of int64, (batch,)
    Bytes from the beginning of a or b to each matrix (addressing="offset").
bias : array of float32, (n,); with bfloat16 operands also of bfloat16
scale : float, or array of float32, (1,) or (n,)
residual : array of out_dtype, (m, n)
relu_mask : array of uint8, (m, ceil(n / 8))
zero_point_a, zero_point_b : int

Raises
------
TypeError, ValueError
    A sentence that names the argument; nothing has been written then.
)";

// The keyword arguments of a call. Looked up by hand: pybind11's own matching of a dozen optional
// arguments takes longer than a small kernel.
CallArguments call_arguments(py::handle a, py::handle b, py::handle c, const py::kwargs& others) {
    CallArguments call{
        .a = {"a", "stride_a", "offsets_a", a}, .b = {"b", "stride_b", "offsets_b", b}, .c = c};
    const std::array<std::pair<const char*, py::handle*>, 11> known = {{
        {"batch", &call.batch},
        {"stride_a", &call.a.stride},
        {"stride_b", &call.b.stride},
        {"offsets_a", &call.a.offsets},
        {"offsets_b", &call.b.offsets},
        {"bias", &call.bias},
        {"scale", &call.scale},
        {"residual", &call.residual},
        {"relu_mask", &call.relu_mask},
        {"zero_point_a", &call.zero_point_a},
        {"zero_point_b", &call.zero_point_b},
    }};
    for (const auto& [key, value] : others) {
        const auto same = [&key = key](const auto& entry) {
            return PyUnicode_CompareWithASCIIString(key.ptr(), entry.first) == 0;
        };
        const auto found = std::find_if(known.begin(), known.end(), same);
        if (found == known.end()) {
            throw py::type_error("a call of a kernel has no argument '" + key.cast<std::string>() +
                                 "'");
        }
        *found->second = value;
    }
    return call;
}

constexpr const char* kMeasureDocumentation =
    R"(measure($self, a, b, c, *, repeats, **others)
--

Seconds per call of `repeats` calls in a row.

Parameters
----------
a, b, c : array
    As for a call.
repeats : int
    At least 1; by name.
**others
    As for a call.

Returns
-------
float

Raises
------
TypeError, ValueError
    A sentence that names the argument; nothing has been written then.
)";

// Tried after the other, whose failure is about how it was called.
void refuse_measure(std::size_t given, const py::kwargs& named) {
    if (given == 3 && !named.contains("repeats")) {
        throw py::type_error("repeats is missing, expected an integer of at least 1");
    }
    throw py::type_error("measure was called with " + std::to_string(given) +
                         " arguments by position, expected a, b and c, and all others by name, "
                         "as in kernel.measure(a, b, c, repeats=100)");
}

}  // namespace

void register_kernel(py::module_& module) {
    py::class_<Kernel> kernel(module, "Kernel");
    kernel.def(py::init(&make_kernel), py::arg("request"))
        .def_property_readonly(
            "isa",
            [](const Kernel& self) { return std::string(name_of(self.brgemm_kernel().isa())); })
        .def_property_readonly("tile", tile_of)
        .def_property_readonly("name",
                               [](const Kernel& self) { return self.brgemm_kernel().name(); })
        .def_property_readonly(
            "plan", [](const Kernel& self) { return to_string(self.brgemm_kernel().plan()); })
        .def_property_readonly("code", code_of);
    {
        py::options options;
        options.disable_function_signatures();  // in favour of those in the documentation
        kernel
            .def(
                "__call__",
                [](const Kernel& self, py::handle a, py::handle b, py::handle c,
                   const py::kwargs& others) { self.call(call_arguments(a, b, c, others)); },
                py::arg("a"), py::arg("b"), py::arg("c"), kCallDocumentation)
            // Tried after the other, whose failure is about how it was called.
            .def("__call__",
                 [](const Kernel&, const py::args& given, const py::kwargs&) {
                     throw py::type_error("a kernel was called with " +
                                          std::to_string(given.size()) +
                                          " arguments by position, expected a, b and c, and all "
                                          "others by name, as in kernel(a, b, c, bias=bias)");
                 })
            .def(
                "measure",
                [](const Kernel& self, py::handle a, py::handle b, py::handle c, py::handle repeats,
                   const py::kwargs& others) {
                    return self.measure(call_arguments(a, b, c, others),
                                        integer_or("repeats", repeats, 0));
                },
                py::arg("a"), py::arg("b"), py::arg("c"), py::kw_only(), py::arg("repeats"),
                kMeasureDocumentation)
            .def("measure", [](const Kernel&, const py::args& given, const py::kwargs& named) {
                refuse_measure(given.size(), named);
            });
    }
    module.def("kernel_cache_info", cache_info);
    module.def("kernel_cache_clear", [] {
        kernel_cache_clear();
        row_cache_clear();
        move_cache_clear();
        stream_cache_clear();
        panel_cache_clear();
    });
}

}  // namespace dlprim::bindings
