// The three passes that a layer with weights has, under the names that schedules are stored by.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace dlprim {

enum class Pass : std::uint8_t { forward, backward_data, backward_weights };

inline constexpr std::array<Pass, 3> kPasses = {Pass::forward, Pass::backward_data,
                                                Pass::backward_weights};

constexpr std::string_view name_of(Pass pass) {
    constexpr std::array<std::string_view, 3> names = {"forward", "backward_data",
                                                       "backward_weights"};
    return names.at(static_cast<std::size_t>(pass));
}

}  // namespace dlprim
