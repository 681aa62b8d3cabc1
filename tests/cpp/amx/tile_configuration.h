// Operands of LDTILECFG for tests.
#pragma once

#include <cstdint>
#include <vector>

#include "amx/tile_file.h"

namespace dlprim::testing {

struct TileShape {
    int rows;
    int row_bytes;
};

inline TileConfiguration configuration_of(const std::vector<TileShape>& shapes) {
    TileConfiguration configuration = {.palette = 1};
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        configuration.rows[i] = static_cast<std::uint8_t>(shapes[i].rows);
        configuration.row_bytes[i] = static_cast<std::uint16_t>(shapes[i].row_bytes);
    }
    return configuration;
}

// Of tiles 0, 1 and 2: a result of m rows and n columns of 4 bytes, and its sources with k words.
inline TileConfiguration product_shapes(int m, int n, int k) {
    return configuration_of({{m, 4 * n}, {m, 4 * k}, {k, 4 * n}});
}

}  // namespace dlprim::testing
