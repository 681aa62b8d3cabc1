#include <memory>
#include <stdexcept>
#include <string>

#include "bindings/kernel.h"
#include "bindings/register.h"

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
    const py::gil_scoped_release without_gil;
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
    const CacheInfo info = kernel_cache_info();
    py::dict result;
    result["entries"] = info.entries;
    result["bytes"] = info.bytes;
    result["mapped_bytes"] = mapped_code_bytes();
    result["hits"] = info.hits;
    result["misses"] = info.misses;
    result["evictions"] = info.evictions;
    result["max_entries"] = info.max_entries;
    result["max_bytes"] = info.max_bytes;
    return result;
}

}  // namespace

void register_kernel(py::module_& module) {
    py::class_<Kernel>(module, "Kernel")
        .def(py::init(&make_kernel), py::arg("request"))
        .def(
            "__call__",
            [](const Kernel& self, py::handle a, py::handle b, py::handle c, py::handle batch,
               py::handle stride_a, py::handle stride_b, py::handle offsets_a, py::handle offsets_b,
               py::handle bias, py::handle scale, py::handle residual, py::handle relu_mask,
               py::handle zero_point_a, py::handle zero_point_b) {
                self.call({a, b, c, batch, stride_a, stride_b, offsets_a, offsets_b, bias, scale,
                           residual, relu_mask, zero_point_a, zero_point_b});
            },
            py::arg("a"), py::arg("b"), py::arg("c"), py::arg("batch") = py::none(),
            py::arg("stride_a") = py::none(), py::arg("stride_b") = py::none(),
            py::arg("offsets_a") = py::none(), py::arg("offsets_b") = py::none(),
            py::arg("bias") = py::none(), py::arg("scale") = py::none(),
            py::arg("residual") = py::none(), py::arg("relu_mask") = py::none(),
            py::arg("zero_point_a") = py::none(), py::arg("zero_point_b") = py::none())
        .def(
            "measure",
            [](const Kernel& self, py::handle a, py::handle b, py::handle c, std::int64_t repeats,
               py::handle batch, py::handle bias) {
                const py::none none;
                return self.measure(
                    {a, b, c, batch, none, none, none, none, bias, none, none, none, none, none},
                    repeats);
            },
            py::arg("a"), py::arg("b"), py::arg("c"), py::kw_only(), py::arg("repeats"),
            py::arg("batch") = py::none(), py::arg("bias") = py::none())
        .def_property_readonly(
            "isa",
            [](const Kernel& self) { return std::string(name_of(self.brgemm_kernel().isa())); })
        .def_property_readonly("tile", tile_of)
        .def_property_readonly("name",
                               [](const Kernel& self) { return self.brgemm_kernel().name(); })
        .def_property_readonly(
            "plan", [](const Kernel& self) { return to_string(self.brgemm_kernel().plan()); })
        .def_property_readonly("code", code_of);
    module.def("kernel_cache_info", cache_info);
    module.def("kernel_cache_clear", kernel_cache_clear);
}

}  // namespace dlprim::bindings
