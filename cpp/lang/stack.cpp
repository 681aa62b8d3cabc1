#include "lang/stack.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>

#include "lang/lexer.h"

namespace dlprim {
namespace {

// Compilation takes 750 bytes a level in an optimised build, and beside the levels it takes, as an
// exception does, about ten thousand.
constexpr std::int64_t kBytesOfLevel = 1536;
constexpr std::int64_t kBytesBeside = std::int64_t{16} << 10;

// The address where the stack of this thread ends; it grows down. Null where nobody knows.
const char* end_of_stack() {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return nullptr;
    void* lowest = nullptr;
    std::size_t bytes = 0;
    pthread_attr_getstack(&attributes, &lowest, &bytes);
    pthread_attr_destroy(&attributes);
    return static_cast<const char*>(lowest);
}

}  // namespace

void require_stack(std::string_view text, std::int64_t position, std::int64_t levels) {
    // The system is asked once: for the first thread of a process it reads a file.
    thread_local const char* const end = end_of_stack();
    const char here = 0;
    const std::int64_t left = &here - end, needed = kBytesBeside + levels * kBytesOfLevel;
    if (left >= needed) return;
    refuse_at(text, position, "The formula is nested deeper than the stack of this thread allows, ",
              "of which ", left >> 10, " KiB are left, expected ", (needed + 1023) >> 10,
              " KiB or fewer levels");
}

void require_stack(std::string_view text, const Statement& it) {
    std::int64_t levels = it.value.levels;
    const auto add = [&](const Expression& tree) { levels = std::max(levels, tree.levels); };
    for (const Expression& place : it.target.operands) add(place);
    for (const Expression& read : it.exists) add(read);
    for (const RangeClause& range : it.ranges) {
        add(range.first);
        add(range.end);
    }
    require_stack(text, it.position, levels);
}

}  // namespace dlprim
