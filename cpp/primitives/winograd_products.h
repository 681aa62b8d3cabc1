// The products of a Winograd convolution, one per slot, as descriptions for the one driver:
//   M[slot][tile][out] (+)= sum over in of V[slot][tile][in] * U[slot][in][out]
// A slot has as many rows as there are tiles that take part in it, so blocks of tiles with the
// same counts share a plan.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "primitives/contraction.h"
#include "primitives/winograd_tiles.h"

namespace dlprim {

// Floats from one to the next, so that neither rows nor slots fall into the same sets of a cache.
struct WinogradPanels {
    std::int64_t ld_in = 0;         // tiles of V
    std::int64_t ld_out = 0;        // rows of U, tiles of M
    std::int64_t slots_stride = 0;  // slots of V
    std::int64_t sums_stride = 0;   // slots of M
    // Slots of U with `depth` rows.
    std::int64_t filter_stride(std::int64_t depth) const;
};

WinogradPanels winograd_panels(std::int64_t tiles, std::int64_t in, std::int64_t out);

class WinogradProducts {
public:
    struct Kind {
        TileBlock::Counts counts = {};
        std::int64_t columns = 0;  // of M
        std::int64_t depth = 0;    // in channels
        bool accumulates = false;

        friend auto operator<=>(const Kind&, const Kind&) = default;
    };

    // Looks up the kernels of a kind, unless that was done.
    void prepare(const TileGrid& grid, const WinogradPanels& panels, const Kind& kind);
    const ContractionPlan& plan(const Kind& kind) const { return *plans_.at(kind); }
    std::vector<std::string> kernel_names() const;  // each once, sorted

private:
    std::map<Kind, std::unique_ptr<const ContractionPlan>> plans_;
};

}  // namespace dlprim
