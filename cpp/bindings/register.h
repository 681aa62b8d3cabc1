// What the extension module is made of: one function per group of bindings, called by module.cpp.
#pragma once

#include <pybind11/pybind11.h>

namespace dlprim::bindings {

void register_activation_layers(pybind11::module_& module);
void register_answered_functions(pybind11::module_& module);
void register_array_functions(pybind11::module_& module);
void register_arrays(pybind11::module_& module);
void register_attention(pybind11::module_& module);
void register_attention_steps(pybind11::module_& module);
void register_conv2d(pybind11::module_& module);
void register_elementwise(pybind11::module_& module);
void register_kernel(pybind11::module_& module);
void register_known_calls(pybind11::module_& module);
void register_known_networks(pybind11::module_& module);
void register_linear(pybind11::module_& module);
void register_loops(pybind11::module_& module);
void register_loss(pybind11::module_& module);
void register_network(pybind11::module_& module);  // in front of all that add steps to it
void register_network_steps(pybind11::module_& module);
void register_run_events(pybind11::module_& module);
void register_paused_runs(pybind11::module_& module);
void register_definition(pybind11::module_& module);
void register_definition_trees(pybind11::module_& module);
void register_panel_linear(pybind11::module_& module);
void register_part_blocks(pybind11::module_& module);
void register_part_programs(pybind11::module_& module);
void register_plain_linear(pybind11::module_& module);
void register_rnn(pybind11::module_& module);
void register_row_programs(pybind11::module_& module);
void register_step_bodies(pybind11::module_& module);
void register_update_steps(pybind11::module_& module);
void register_volume_conv(pybind11::module_& module);

}  // namespace dlprim::bindings
