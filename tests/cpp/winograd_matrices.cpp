#include "winograd_matrices.h"

#include <cmath>
#include <cstddef>

#include "primitives/winograd/winograd_transform.h"

namespace dlprim::testing {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

std::vector<double> points_of(int tile) {
    const double a = std::sqrt(0.5), b = std::sqrt(2.0);
    if (tile == 2) return {0, 1, -1};
    return tile == 3 ? std::vector<double>{0, a, -a, b} : std::vector<double>{0, a, -a, b, -b};
}

double product_of_distances(const std::vector<double>& points, double point) {
    double product = 1;
    for (const double other : points) product *= other == point ? 1 : point - other;
    return product;
}

// Of the point 0 the filter is taken as it is, whatever the sign of Lagrange's denominator.
double filter_scale(int tile, double point) {
    if (point == 0) return 1;
    return 1 / product_of_distances(points_of(tile == 2 ? 2 : 4), point);
}

}  // namespace

Matrix powers(int tile, int columns) {
    Matrix matrix{columns, std::vector(at(slots_of(tile)), std::vector<double>(at(columns)))};
    const std::vector<double> points = points_of(tile);
    for (std::size_t slot = 0; slot < points.size(); ++slot) {
        for (int j = 0; j < columns; ++j) matrix.rows[slot][at(j)] = std::pow(points[slot], j);
    }
    matrix.rows.back().back() = 1;
    return matrix;
}

Matrix filter_matrix(int tile) {
    Matrix matrix = powers(tile, 3);
    const std::vector<double> points = points_of(tile);
    for (std::size_t slot = 0; slot < points.size(); ++slot) {
        for (double& each : matrix.rows[slot]) each *= filter_scale(tile, points[slot]);
    }
    return matrix;
}

Matrix input_matrix(int tile) {
    const std::vector<double> points = points_of(tile);
    Matrix matrix{tile + 2, std::vector(at(slots_of(tile)), std::vector<double>(at(tile + 2)))};
    for (std::size_t slot = 0; slot <= points.size(); ++slot) {
        const bool finite = slot < points.size();
        std::vector<double> product = {1};
        for (std::size_t other = 0; other < points.size(); ++other) {
            if (other == slot) continue;
            product.insert(product.begin(), 0);
            for (std::size_t i = 0; i + 1 < product.size(); ++i) {
                product[i] -= points[other] * product[i + 1];
            }
        }
        const double scale = finite ? 1 / filter_scale(tile, points[slot]) /
                                          product_of_distances(points, points[slot])
                                    : 1;
        auto& row = finite ? matrix.rows[slot] : matrix.rows.back();
        for (std::size_t i = 0; i < product.size(); ++i) row[i] = scale * product[i];
    }
    return matrix;
}

Matrix transposed(const Matrix& matrix) {
    const auto rows = static_cast<int>(matrix.rows.size());
    Matrix turned{rows, std::vector(at(matrix.columns), std::vector<double>(at(rows)))};
    for (std::size_t i = 0; i < matrix.rows.size(); ++i) {
        for (int j = 0; j < matrix.columns; ++j) turned.rows[at(j)][i] = matrix.rows[i][at(j)];
    }
    return turned;
}

}  // namespace dlprim::testing
