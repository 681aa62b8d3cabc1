# Xbyak, the assembler, as the target dlprim_xbyak: the system's package, or the pinned release.
# find_package gets no version: upstream's version file accepts only its own major version and
# Debian's accepts any, so no range admits both.
set(DLPRIM_XBYAK "AUTO" CACHE STRING "Where Xbyak comes from: AUTO, SYSTEM or FETCH")
set_property(CACHE DLPRIM_XBYAK PROPERTY STRINGS AUTO SYSTEM FETCH)

add_library(dlprim_xbyak INTERFACE)
if(NOT DLPRIM_XBYAK STREQUAL "FETCH")
  find_package(xbyak CONFIG QUIET)
  if(xbyak_FOUND AND xbyak_VERSION VERSION_LESS 6.68)
    set(xbyak_FOUND FALSE)
  endif()
endif()
if(xbyak_FOUND)
  target_link_libraries(dlprim_xbyak INTERFACE xbyak::xbyak)
elseif(DLPRIM_XBYAK STREQUAL "SYSTEM")
  message(FATAL_ERROR
    "Xbyak 6.68 or later was not found: apt install libxbyak-dev, or configure with -DDLPRIM_XBYAK=FETCH")
else()
  include(FetchContent)
  set(repository https://github.com/herumi/xbyak)
  set(unreachable FALSE)
  # FetchContent ends in git's words, which do not say what to install.
  if(NOT EXISTS "${FETCHCONTENT_SOURCE_DIR_XBYAK}/xbyak/xbyak.h"
      AND NOT EXISTS "${FETCHCONTENT_BASE_DIR}/xbyak-src/xbyak/xbyak.h")
    find_package(Git QUIET)
    set(unreachable TRUE)
    if(GIT_FOUND)
      execute_process(
        COMMAND ${CMAKE_COMMAND} -E env GIT_TERMINAL_PROMPT=0 "${GIT_EXECUTABLE}" ls-remote --heads
          ${repository}
        RESULT_VARIABLE unreachable OUTPUT_QUIET ERROR_QUIET TIMEOUT 60)
    endif()
  endif()
  if(unreachable)
    message(FATAL_ERROR
      "Xbyak 6.68 or later was not found, and git cannot read ${repository}: apt install libxbyak-dev, or "
      "configure with -DFETCHCONTENT_SOURCE_DIR_XBYAK=<folder of Xbyak>")
  endif()
  # SOURCE_SUBDIR names no directory, so the sources are fetched but Xbyak's own install rules
  # stay out of our package.
  FetchContent_Declare(xbyak
    GIT_REPOSITORY ${repository}
    GIT_TAG 2d985610ec07c601c8a0f6f516e3419e91a17ae4 # v7.37.5
    SOURCE_SUBDIR headers_only)
  FetchContent_MakeAvailable(xbyak)
  target_include_directories(dlprim_xbyak SYSTEM INTERFACE ${xbyak_SOURCE_DIR})
endif()
