// The transforms of Winograd convolution as matrices of double, made from the interpolation points
// and not from the formulas under test: values of polynomials at the points, and the coefficients
// of Lagrange's products.
#pragma once

#include <cstdint>
#include <vector>

namespace dlprim::testing {

// A row for each slot, all zeros where a tile lacks it.
struct Matrix {
    int columns = 0;
    std::vector<std::vector<double>> rows;
};

// 1, x, x^2, ... at the points of a tile; of the last slot, infinity, the highest power alone.
Matrix powers(int tile, int columns);
// Of a filter of 3 taps, for tiles of 4 and 3, or 2.
Matrix filter_matrix(int tile);
// The coefficients of the product of x - q over the other points, scaled against the filter.
Matrix input_matrix(int tile);
Matrix transposed(const Matrix& matrix);

}  // namespace dlprim::testing
