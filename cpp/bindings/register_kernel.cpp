#include <memory>
#include <stdexcept>
#include <string>

#include "bindings/kernel.h"
#include "bindings/register.h"

namespace dlprim::bindings {
namespace {

// The request as Python's Brgemm passes it on: integers checked, defaults and names resolved.
struct KernelRequest {
    std::int64_t m, n, k, lda, ldb, ldc;
    bool trans_a;
    int beta;
    std::string addressing;
    bool bias;
    std::string activation;
    std::string isa;

    BrgemmSpec spec() const {
        return {.m = m,
                .n = n,
                .k = k,
                .lda = lda,
                .ldb = ldb,
                .ldc = ldc,
                .trans_a = trans_a,
                .beta = beta,
                .addressing = parse_addressing(addressing),
                .epilogue = {.bias = bias, .activation = parse_activation(activation)}};
    }
};

Isa isa_argument(const std::string& name) {
    try {
        return parse_isa(name);
    } catch (const std::invalid_argument& error) {
        throw std::invalid_argument(std::string("isa: ") + error.what());
    }
}

std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) {
    const BrgemmSpec spec = request.spec();
    const Isa isa = isa_argument(request.isa);
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
        .def(py::init([](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lda,
                         std::int64_t ldb, std::int64_t ldc, bool trans_a, int beta,
                         const std::string& addressing, bool bias, const std::string& activation,
                         const std::string& isa) {
                 return make_kernel(
                     {m, n, k, lda, ldb, ldc, trans_a, beta, addressing, bias, activation, isa});
             }),
             py::kw_only(), py::arg("m"), py::arg("n"), py::arg("k"), py::arg("lda"),
             py::arg("ldb"), py::arg("ldc"), py::arg("trans_a"), py::arg("beta"),
             py::arg("addressing"), py::arg("bias"), py::arg("activation"), py::arg("isa"))
        .def(
            "__call__",
            [](const Kernel& self, py::handle a, py::handle b, py::handle c, py::handle batch,
               py::handle stride_a, py::handle stride_b, py::handle offsets_a, py::handle offsets_b,
               py::handle bias) {
                self.call({a, b, c, batch, stride_a, stride_b, offsets_a, offsets_b, bias});
            },
            py::arg("a"), py::arg("b"), py::arg("c"), py::arg("batch") = py::none(),
            py::arg("stride_a") = py::none(), py::arg("stride_b") = py::none(),
            py::arg("offsets_a") = py::none(), py::arg("offsets_b") = py::none(),
            py::arg("bias") = py::none())
        .def(
            "measure",
            [](const Kernel& self, py::handle a, py::handle b, py::handle c, std::int64_t repeats,
               py::handle batch, py::handle bias) {
                const py::none none;
                return self.measure({a, b, c, batch, none, none, none, none, bias}, repeats);
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
