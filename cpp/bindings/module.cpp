#include "bindings/register.h"

PYBIND11_MODULE(_core, module) {
    module.doc() = "The C++ core of dlprim; use the functions of the package dlprim instead.";
    dlprim::bindings::register_machine(module);
    dlprim::bindings::register_kernel(module);
    dlprim::bindings::register_linear(module);
    dlprim::bindings::register_pack(module);
}
