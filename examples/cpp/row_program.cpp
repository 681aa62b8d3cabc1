// A layer of one's own as row programs: softmax and its gradient, run on all threads. Prints the
// largest errors against plain loops.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <dlprim/primitives/programs/row_tasks.h>
#include <dlprim/rows/row_builder.h>
#include <dlprim/rows/row_kernel.h>

using namespace dlprim;

RowSpec softmax() {
    RowBuilder row;
    const RowValue x = row.tensor(DType::f32);
    const RowValue power = exp(x - highest(x));
    row.store(DType::f32, power * (1.0F / sum(power)));
    return row.spec();
}

// dx = y (dy - sum(dy y)).
RowSpec softmax_backward() {
    RowBuilder row;
    const RowValue dy = row.tensor(DType::f32), y = row.tensor(DType::f32);
    row.store(DType::f32, y * (dy - sum(dy * y)));
    return row.spec();
}

// Operands in the order in which the program names them.
void run(const RowSpec& program, std::int64_t rows, std::int64_t columns,
         std::initializer_list<const float*> operands) {
    RowArgs args;
    args.rows = rows;
    args.columns = columns;
    std::size_t count = 0;
    for (const float* operand : operands) {
        args.operands[count++] = {const_cast<float*>(operand), columns * 4};  // bytes between rows
    }
    run_rows(*row_kernel(program), args);  // generated once, then from the cache
}

int main() {
    const std::int64_t rows = 100, columns = 77;
    std::vector<float> x(rows * columns), dy(x.size()), y(x.size()), dx(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = std::sin(static_cast<float>(i));
        dy[i] = std::cos(static_cast<float>(i));
    }
    run(softmax(), rows, columns, {x.data(), y.data()});
    run(softmax_backward(), rows, columns, {dy.data(), y.data(), dx.data()});
    double error = 0, gradient_error = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
        double powers = 0, along = 0;
        const auto at = [&](std::int64_t column) {
            return static_cast<std::size_t>(row * columns + column);
        };
        for (std::int64_t c = 0; c < columns; ++c) powers += std::exp(double{x[at(c)]});
        for (std::int64_t c = 0; c < columns; ++c) {
            along += dy[at(c)] * std::exp(double{x[at(c)]}) / powers;
        }
        for (std::int64_t c = 0; c < columns; ++c) {
            const double share = std::exp(double{x[at(c)]}) / powers;
            error = std::fmax(error, std::fabs(y[at(c)] - share));
            gradient_error =
                std::fmax(gradient_error, std::fabs(dx[at(c)] - share * (dy[at(c)] - along)));
        }
    }
    std::printf("softmax is within %.1e, its gradient within %.1e\n", error, gradient_error);
    return error < 1e-6 && gradient_error < 1e-6 ? 0 : 1;
}
