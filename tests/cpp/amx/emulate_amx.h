// Runs kernels for AMX on CPUs without it, or that have it and were not asked for it: instructions
// on tiles are illegal in both cases, and a handler of SIGILL does what they would have done.
// A kernel that breaks a rule of the hardware is told so on stderr, and its instruction stays
// illegal. On a CPU with AMX the configuration of tiles is the CPU's own, which is legal there, and
// to load the one once more that is loaded already does not zero them. Tiles are kept per thread; a
// forked child goes on with those of the thread that forked.
#pragma once

namespace dlprim::testing {

// From now on and for the whole process. Who handles SIGILL already gets what is not emulated.
// Throws std::logic_error where the CPU runs AMX in this process, as nothing would be emulated.
void emulate_amx();

// Does so, and says so to the library, where the environment variable DLPRIM_EMULATE_AMX is 1:
// before the first call of usable_isa(). On a machine whose other instructions do not suffice for
// that level it ends the process, with a sentence and the exit status kSkipped.
void emulate_amx_where_asked();

// Whether the environment asks for it.
bool emulates_amx();

inline constexpr int kSkipped = 77;

}  // namespace dlprim::testing
