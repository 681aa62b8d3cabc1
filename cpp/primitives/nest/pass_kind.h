// The three passes that a layer with weights has, under the names that schedules are stored by.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dlprim {

enum class PassKind : std::uint8_t { forward, backward_data, backward_weights };

inline constexpr std::array<PassKind, 3> kPassKinds = {PassKind::forward, PassKind::backward_data,
                                                       PassKind::backward_weights};

constexpr std::string_view name_of(PassKind pass) {
    constexpr std::array<std::string_view, 3> names = {"forward", "backward_data",
                                                       "backward_weights"};
    return names.at(static_cast<std::size_t>(pass));
}

}  // namespace dlprim
