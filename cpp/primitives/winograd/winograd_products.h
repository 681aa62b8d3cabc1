// The products of a Winograd convolution, one per slot, as descriptions for the one driver:
//   M[slot][tile][out] (+)= sum over in of V[slot][tile][in] * U[slot][in][out]
// in the forward and backward-data passes, and in backward-weights
//   M[slot][in][out] (+)= sum over tile of V[slot][tile][in] * Y[slot][tile][out]
// A slot has as many rows, or terms of the sum, as there are tiles that take part in it, so blocks
// of tiles with the same counts share a plan.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "primitives/nest/contraction_plan.h"
#include "primitives/winograd/winograd_tiles.h"

namespace dlprim {

// A matrix for each slot: floats from row to row and from slot to slot, odd numbers of cache lines
// so that neither fall into the same sets of a cache.
struct SlotPanels {
    std::int64_t ld = 0;
    std::int64_t stride = 0;
};

// `dense` rows are only filled up to whole vectors.
SlotPanels slot_panels(std::int64_t rows, std::int64_t columns, bool dense);

// So many tiles, or up to a quarter more: programs have the distance of slots in them, and serve
// images of nearly as many tiles.
std::int64_t room_for_tiles(std::int64_t tiles);

class WinogradProducts {
public:
    struct Kind {
        TileBlock::Counts counts = {};
        std::int64_t columns = 0;   // of M
        std::int64_t channels = 0;  // in
        bool over_tiles = false;    // the sum
        bool accumulates = false;

        friend auto operator<=>(const Kind&, const Kind&) = default;
    };
    struct Panels {
        SlotPanels a;
        SlotPanels b;
        SlotPanels c;
    };

    // Looks up the kernels of a kind, unless that was done.
    void prepare(const TileGrid& grid, const Panels& panels, const Kind& kind);
    const ContractionPlan& plan(const Kind& kind) const { return *plans_.at(kind); }
    std::vector<std::string> kernel_names() const;  // each once, sorted

private:
    std::map<Kind, std::unique_ptr<const ContractionPlan>> plans_;
};

}  // namespace dlprim
