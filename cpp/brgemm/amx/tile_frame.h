// What a kernel with tiles has on the stack, for the stages that share it: finished tiles reach the
// vectors' registers through memory, and there are more counters than registers.
#pragma once

#include "brgemm/amx/tile_map.h"

namespace dlprim {

// What lies where from the stack pointer up.
inline constexpr int kSums = 0;  // the block of C, row by row
inline constexpr int kSumsOfB = kSums + kMostTilesAcross * kTileBytes;
inline constexpr int kSumsOfA = kSumsOfB + kMostTilesAcross * kTileRowBytes;
inline constexpr int kOnes = kSumsOfA + kMostTilesAcross * kTileBytes;
inline constexpr int kLastA =
    kOnes + kTileBytes;  // of the last step, zeros behind the last element
inline constexpr int kLastB = kLastA + kMostTilesAcross * kTileBytes;
// A core that has stored no tile for some 2000 cycles takes 700 for the next: so one is stored here
// now and then.
inline constexpr int kAwake = kLastB + kMostTilesAcross * kTileBytes;
inline constexpr int kRowCounter = kAwake + kTileRowBytes;
inline constexpr int kColumnCounter = kRowCounter + 8;
inline constexpr int kConfigured = kColumnCounter + 8;  // the address of what the tiles are now
inline constexpr int kOwnState = kConfigured + 8;
inline constexpr int kStack = kOwnState + 8;
inline constexpr int kFrameBytes = (kStack + 8 + kTileRowBytes - 1) / kTileRowBytes * kTileRowBytes;

}  // namespace dlprim
