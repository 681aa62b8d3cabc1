// Which compilation of a file of vector code runs. Such a file is written once in Highway and
// compiled once per vector width: foreach_target.h includes it again for each, highway.h then
// defines HWY_NAMESPACE and the compiler's target attributes. What the file exports stands behind
// HWY_ONCE and asks here, so that the ISA level that chooses kernels chooses vectors as well and
// DLPRIM_MAX_ISA lowers both. Highway's own dispatch is not used: it would know nothing of that
// level and would need Highway's library at run time, where these files need its headers only.
#pragma once

#include <hwy/detect_targets.h>

#include "jit/isa.h"

namespace dlprim {

static_assert((HWY_TARGETS & ~(HWY_AVX3 | HWY_AVX2 | HWY_SCALAR)) == 0,
              "One compilation per ISA level, the same ones whatever Highway's version.");

// A null function was not compiled: the compiler's own options already ask for more than its level.
template <class Function>
constexpr Function for_isa(Isa isa, Function avx512, Function avx2, Function lowest) {
    if (isa >= Isa::avx512 && avx512 != nullptr) return avx512;
    if (isa >= Isa::avx2 && avx2 != nullptr) return avx2;
    return lowest;
}

}  // namespace dlprim

#if HWY_TARGETS & HWY_AVX3
#define DLPRIM_AVX512_COMPILATION(function) &N_AVX3::function
#else
#define DLPRIM_AVX512_COMPILATION(function) nullptr
#endif
#if HWY_TARGETS & HWY_AVX2
#define DLPRIM_AVX2_COMPILATION(function) &N_AVX2::function
#else
#define DLPRIM_AVX2_COMPILATION(function) nullptr
#endif

// The compilation of `function`, which stands in the file's namespace HWY_NAMESPACE, for an ISA
// level that this machine can run. A macro, because no template takes the name of a namespace.
#define DLPRIM_FOR_ISA(isa, function)                                                \
    ::dlprim::for_isa<decltype(&HWY_STATIC_DISPATCH(function))>(                     \
        isa, DLPRIM_AVX512_COMPILATION(function), DLPRIM_AVX2_COMPILATION(function), \
        &HWY_STATIC_DISPATCH(function))
