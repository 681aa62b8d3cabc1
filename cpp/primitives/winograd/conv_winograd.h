// The Winograd half of a convolution: for every pass whether it runs that way, by estimated time
// where the caller leaves it open, and the transformed weights behind the packed ones.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "primitives/nest/pass_kind.h"
#include "primitives/winograd/winograd_pass.h"
#include "primitives/winograd/winograd_weights_pass.h"

namespace dlprim {

struct ConvSpec;

class ConvWinograd {
public:
    // Throws std::invalid_argument when the spec asks for what Winograd cannot do.
    explicit ConvWinograd(const ConvSpec& spec);

    bool runs(PassKind pass) const { return choices_[index(pass)].tile != 0; }
    // "direct", "winograd4" or "winograd2": with tiles of 4 or 2.
    std::string name(PassKind pass) const {
        const int tile = choices_[index(pass)].tile;
        return tile == 0 ? "direct" : "winograd" + std::to_string(tile);
    }
    // One line: the algorithm of a pass, and why.
    std::string reason(PassKind pass) const { return choices_[index(pass)].reason; }

    // Floats of the transformed weights of a pass, 0 where it does not run.
    std::int64_t transformed_floats(PassKind pass) const;
    // `weights` are packed; for backward-data, the transposed ones.
    void transform(PassKind pass, const void* weights, float* transformed) const;

    std::shared_ptr<const WinogradPass> pass(PassKind pass) const;
    std::shared_ptr<const WinogradWeightsPass> weights_pass() const;

    std::vector<Loop> loops(PassKind pass) const;
    Schedule schedule(PassKind pass) const;
    void set_schedule(PassKind pass, const Schedule& schedule);
    std::vector<Schedule> candidates(PassKind pass, int count) const;
    std::vector<std::string> kernel_names(PassKind pass) const;

private:
    struct Choice {
        int tile = 0;  // 0: direct
        std::string reason;
        Schedule schedule;
    };
    static std::size_t index(PassKind pass) { return static_cast<std::size_t>(pass); }
    void choose(PassKind pass, const ConvSpec& spec, const std::string& obstacle);
    WinogradProblem problem_of(PassKind pass, int tile) const;

    ConvProblem problem_;
    std::array<Choice, 3> choices_;
    mutable std::mutex mutex_;
    std::array<std::shared_ptr<const WinogradPass>, 2> passes_;
    std::shared_ptr<const WinogradWeightsPass> weights_pass_;
};

}  // namespace dlprim
