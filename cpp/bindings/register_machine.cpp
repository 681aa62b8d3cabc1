#include <string>

#include "bindings/array.h"
#include "bindings/register.h"
#include "brgemm/peak.h"
#include "jit/isa.h"
#include "primitives/tensor/parallel.h"

namespace dlprim::bindings {

namespace py = pybind11;

void register_machine(py::module_& module) {
    module.def("isa", [] { return std::string(name_of(usable_isa())); });
    module.def("detected_isa", [] { return std::string(name_of(detected_isa())); });
    module.def("num_threads", num_threads);
    module.def("set_num_threads", set_num_threads, py::arg("count"));
    module.def(
        "fma_peak",
        [](const std::string& dtype, const std::string& isa, double seconds) {
            return fma_peak(parse_dtype(dtype), parse_isa(isa), seconds);
        },
        py::arg("dtype"), py::arg("isa"), py::arg("seconds"),
        py::call_guard<py::gil_scoped_release>());
    module.def(
        "read_bandwidth",
        [](const std::string& isa, std::int64_t bytes, double seconds) {
            return read_bandwidth(parse_isa(isa), bytes, seconds);
        },
        py::arg("isa"), py::arg("bytes"), py::arg("seconds"),
        py::call_guard<py::gil_scoped_release>());
}

}  // namespace dlprim::bindings
