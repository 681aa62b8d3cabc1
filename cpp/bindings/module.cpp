#include <exception>
#include <string>

#include "bindings/arrays/array.h"
#include "bindings/arrays/without_gil.h"
#include "bindings/register.h"
#include "brgemm/brgemm.h"
#include "brgemm/peak.h"
#include "jit/isa.h"
#include "jit/machine.h"
#include "jit/pricing.h"
#include "panels/panel_kernel.h"
#include "primitives/tensor/parallel.h"
#include "rows/row_kernel.h"

namespace dlprim::bindings {
namespace {

void register_machine(py::module_& module) {
    module.def("isa", [] { return std::string(name_of(usable_isa())); });
    module.def("detected_isa", [] { return std::string(name_of(detected_isa())); });
    module.def("num_threads", num_threads);
    module.def("set_num_threads", set_num_threads, py::arg("count"));
    module.def("set_threads_of_caller", set_threads_of_caller, py::arg("count"));
    module.def("reason_for_num_threads", reason_for_num_threads);
    module.def(
        "priced",
        [](const py::function& call, int threads) {
            if (threads < 1) throw py::value_error("a price is of at least one thread");
            const Pricing pricing(threads);
            call();
            return py::make_tuple(pricing.work(), pricing.elapsed(), pricing.loops(),
                                  pricing.tasks());
        },
        py::arg("call"), py::arg("threads"));
    module.def(
        "fma_peak",
        [](const std::string& dtype, const std::string& isa, double seconds) {
            return fma_peak(parse_dtype(dtype), parse_isa(isa), seconds);
        },
        py::arg("dtype"), py::arg("isa"), py::arg("seconds"), py::call_guard<WithoutGil>());
    module.def(
        "read_bandwidth",
        [](const std::string& isa, std::int64_t bytes, double seconds) {
            return read_bandwidth(parse_isa(isa), bytes, seconds);
        },
        py::arg("isa"), py::arg("bytes"), py::arg("seconds"), py::call_guard<WithoutGil>());
}

}  // namespace
}  // namespace dlprim::bindings

// By which threadpoolctl knows this library (dlprim/kernel/pools.py).
extern "C" __attribute__((visibility("default"))) int dlprim_num_threads() {
    return dlprim::num_threads();
}

PYBIND11_MODULE(_core, module) {
    module.doc() = "The C++ core of dlprim; use the functions of the package dlprim instead.";
    // Made now, with the caches' fork handlers: a fork amid a first use would find them half made.
    dlprim::kernel_cache_info();
    dlprim::kernel_code_info();
    dlprim::row_cache_info();
    dlprim::panel_cache_info();
    try {
        dlprim::num_threads();
        dlprim::this_machine();
    } catch (const std::exception&) {
        // A wrong DLPRIM_MAX_ISA or DLPRIM_NUM_THREADS, which the first call refuses.
    }
    dlprim::bindings::register_machine(module);
    dlprim::bindings::register_network(module);
    dlprim::bindings::register_network_steps(module);
    dlprim::bindings::register_run_events(module);
    dlprim::bindings::register_paused_runs(module);
    dlprim::bindings::register_update_steps(module);
    dlprim::bindings::register_array_functions(module);
    dlprim::bindings::register_loops(module);
    dlprim::bindings::register_known_networks(module);
    dlprim::bindings::register_part_blocks(module);
    dlprim::bindings::register_step_bodies(module);
    dlprim::bindings::register_part_programs(module);
    dlprim::bindings::register_arrays(module);
    dlprim::bindings::register_answered_functions(module);
    dlprim::bindings::register_known_calls(module);
    dlprim::bindings::register_kernel(module);
    dlprim::bindings::register_attention(module);
    dlprim::bindings::register_attention_steps(module);
    dlprim::bindings::register_linear(module);
    dlprim::bindings::register_definition(module);
    dlprim::bindings::register_definition_trees(module);
    dlprim::bindings::register_plain_linear(module);
    dlprim::bindings::register_panel_linear(module);
    dlprim::bindings::register_conv2d(module);
    dlprim::bindings::register_rnn(module);
    dlprim::bindings::register_volume_conv(module);
    dlprim::bindings::register_row_programs(module);
    dlprim::bindings::register_activation_layers(module);
    dlprim::bindings::register_elementwise(module);
    dlprim::bindings::register_loss(module);
}
