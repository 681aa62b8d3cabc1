# Highway, the portable vectors, as the target dlprim_highway: the headers of the system's package,
# or of the pinned release. Headers are all that is used (cpp/primitives/tensor/per_isa.h says why),
# so nothing of Highway is linked and consumers of the installed package need none of it.
set(DLPRIM_HIGHWAY "AUTO" CACHE STRING "Where Highway comes from: AUTO, SYSTEM or FETCH")
set_property(CACHE DLPRIM_HIGHWAY PROPERTY STRINGS AUTO SYSTEM FETCH)

add_library(dlprim_highway INTERFACE)
# One target per vector width, each with no more than dlprim's ISA levels promise, and HWY_SCALAR for
# the lowest: by itself Highway takes SSE2, EMU128 or SCALAR there, as its and the compiler's version
# have it, and what is measured and tested should be one program. (1 << 14 is SSE2, which 1.0.3 has
# no name for.) Assertions would call Highway's library.
target_compile_definitions(dlprim_highway INTERFACE
  "HWY_DISABLED_TARGETS=((HWY_AVX3-1)|HWY_SSE4|HWY_SSSE3|(1LL<<14))"
  HWY_BROKEN_EMU128=1
  HWY_DISABLE_PCLMUL_AES HWY_DISABLE_BMI2_FMA HWY_DISABLE_F16C
  HWY_IS_DEBUG_BUILD=0)
if(NOT DLPRIM_HIGHWAY STREQUAL "FETCH")
  find_package(hwy CONFIG QUIET)
  if(hwy_FOUND AND hwy_VERSION VERSION_LESS 1.0.3)
    set(hwy_FOUND FALSE)
  endif()
endif()
if(hwy_FOUND)
  get_target_property(highway_headers hwy::hwy INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(dlprim_highway SYSTEM INTERFACE ${highway_headers})
elseif(DLPRIM_HIGHWAY STREQUAL "SYSTEM")
  message(FATAL_ERROR
    "Highway 1.0.3 or later was not found: apt install libhwy-dev, or configure with -DDLPRIM_HIGHWAY=FETCH")
else()
  include(FetchContent)
  # SOURCE_SUBDIR names no directory, so the sources are fetched but nothing of them is built or
  # installed.
  FetchContent_Declare(highway
    GIT_REPOSITORY https://github.com/google/highway
    GIT_TAG 2607d3b5b0113992fe84d3848859eae13b3b52c1 # 1.4.0
    SOURCE_SUBDIR headers_only)
  FetchContent_MakeAvailable(highway)
  target_include_directories(dlprim_highway SYSTEM INTERFACE ${highway_SOURCE_DIR})
endif()
