// Boxes that remain where others overlap them.
#pragma once

#include <cstdint>
#include <vector>

namespace dlprim {

struct BoxScores {
    const float* boxes = nullptr;   // (samples, count, 4)
    const float* scores = nullptr;  // (samples, classes, count)
    std::int64_t samples = 0, classes = 0, count = 0;
    // Boxes are (x, y, width, height) from their middle; else two opposite corners (y, x, y, x).
    bool is_centered = false;
};

struct Suppression {
    std::int64_t most = 0;  // boxes of a class
    double threshold = 0;   // of the share of two boxes' area that they may have in common
    double least = 0;       // which a score has to be above
};

// Rows of sample, class and box, of each class the best box first, then the best of those that no
// kept one overlaps too much; of equal scores the first box.
std::vector<std::int64_t> kept_boxes(const BoxScores& given, const Suppression& limits);

}  // namespace dlprim
