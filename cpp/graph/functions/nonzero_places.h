// Where the elements of an array are that are not zero. How many there are decides the shape of
// what follows, so that this runs between networks: counted first, then written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dlprim {

// Elements of 1, 2, 4 or 8 bytes in C order; a float's sign does not make a zero something else.
struct FoundElements {
    const void* data = nullptr;
    std::size_t bytes = 1;
    bool is_float = false;
    std::vector<std::int64_t> shape = {};
};

std::int64_t count_nonzero(const FoundElements& given);
// Writes `count` places along each axis, one axis behind the other; of a single number, along one.
void nonzero_places(const FoundElements& given, std::int64_t count, std::int64_t* places);

}  // namespace dlprim
