// The operand of LDTILECFG, for tests that write it.
#pragma once

#include <cstdint>
#include <vector>

namespace dlprim::testing {

struct TileShape {
    int rows;
    int row_bytes;
};

struct TileConfiguration {
    explicit TileConfiguration(const std::vector<TileShape>& shapes) {
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            rows[i] = static_cast<std::uint8_t>(shapes[i].rows);
            row_bytes[i] = static_cast<std::uint16_t>(shapes[i].row_bytes);
        }
    }

    const std::uint8_t* data() const { return &palette; }

    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfiguration) == 64);

// Of tiles 0, 1 and 2: a result of m rows and n columns of 4 bytes, and its sources with k words.
inline TileConfiguration product_shapes(int m, int n, int k) {
    return TileConfiguration({{m, 4 * n}, {m, 4 * k}, {k, 4 * n}});
}

}  // namespace dlprim::testing
