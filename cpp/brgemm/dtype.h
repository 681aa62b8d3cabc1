// Element types as values. A kernel's types are fields of its spec and travel as data through
// plan, emitter, cache and bindings, so that a new type is a new enumerator and its arithmetic,
// never a copied file.
#pragma once

#include <cstdint>
#include <string_view>

namespace dlprim {

enum class DType : std::uint8_t { f32 };

constexpr std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::f32: return 4;
    }
    return 0;
}

constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::f32: return "float32";
    }
    return "unknown";
}

}  // namespace dlprim
