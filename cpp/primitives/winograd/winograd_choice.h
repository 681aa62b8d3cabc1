// Which algorithm a pass of a convolution takes, direct or Winograd, and with which tiles: by
// estimated time where the caller leaves it open; and the pass that it then is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace dlprim {

class ConvPass;
struct ConvSpec;
enum class PassKind : std::uint8_t;

struct WinogradChoice {
    int tile = 0;          // 4 or 2; 0: direct
    std::string reason;    // one line: the algorithm, and why
    double of_direct = 1;  // of the time of the direct sum, by estimate

    // "direct", "winograd4" or "winograd2": with tiles of 4 or 2.
    std::string name() const { return tile == 0 ? "direct" : "winograd" + std::to_string(tile); }
};

// Throws std::invalid_argument when the spec asks for what Winograd cannot do.
WinogradChoice choose_winograd(const ConvSpec& spec, PassKind pass);

// With tiles of 4 or 2.
std::unique_ptr<ConvPass> winograd_pass(const ConvSpec& spec, PassKind pass, int tile);

}  // namespace dlprim
