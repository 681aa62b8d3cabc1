#include "bindings/register.h"
#include "brgemm/brgemm.h"

PYBIND11_MODULE(_core, module) {
    module.doc() = "The C++ core of dlprim; use the functions of the package dlprim instead.";
    // Makes the cache's fork handlers now: a fork amid a first use would find them half made.
    dlprim::kernel_cache_info();
    dlprim::bindings::register_machine(module);
    dlprim::bindings::register_kernel(module);
    dlprim::bindings::register_linear(module);
    dlprim::bindings::register_pack(module);
    dlprim::bindings::register_conv2d(module);
    dlprim::bindings::register_batch_norm(module);
    dlprim::bindings::register_rnn(module);
    dlprim::bindings::register_elementwise(module);
    dlprim::bindings::register_loss(module);
    dlprim::bindings::register_pooling(module);
}
