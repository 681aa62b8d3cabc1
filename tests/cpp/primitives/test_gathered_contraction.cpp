// The driver where a kernel call gathers its pairs from two loops and a third one selects which of
// them there are: C[t] += sum over i and p of A[i][p + t]^T * B[i][p], where row p + t exists.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "contraction_problem.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::at;
using testing::Draw;
using testing::drawn_value;
using testing::Fence;
using testing::Matrix;
using testing::Values;

constexpr std::int64_t kRows = 5;
constexpr std::int64_t kColumns = 16;
constexpr std::int64_t kDepth = 4;
constexpr double kBeyondCaches = 1e12;

struct Sums {
    std::int64_t M = 1;
    std::int64_t N = 1;
    std::int64_t images = 1;
    std::int64_t rows_a = 1;  // of an image
    std::int64_t rows_b = 1;
    std::int64_t shifts = 1;  // t, from -1 on
    DType dtype = DType::f32;
    bool accumulate = false;
    bool beyond_caches = false;

    bool has_row(std::int64_t t, std::int64_t p) const {
        return p + t - 1 >= 0 && p + t - 1 < rows_a;
    }
};

Term term_of(const Sums& it, std::int64_t t) {
    const std::int64_t element = size_of(it.dtype);
    Term term{.k = kDepth, .lda = it.M, .first = true, .last = true};
    for (std::int64_t p = 0; p < it.rows_b; ++p) {
        term.entries_begin.push_back(static_cast<std::int64_t>(term.entries_a.size()));
        if (!it.has_row(t, p)) continue;
        term.entries_a.push_back((p + t - 1) * kDepth * it.M * element);
        term.entries_b.push_back(p * kDepth * it.N * element);
    }
    term.entries_begin.push_back(static_cast<std::int64_t>(term.entries_a.size()));
    return term;
}

Contraction contraction_of(const Sums& it) {
    const std::int64_t row_a = kDepth * it.M * size_of(it.dtype);
    const std::int64_t row_b = kDepth * it.N * size_of(it.dtype);
    Contraction made;
    made.loops = {
        {.letter = 'm',
         .extent = Blocks{it.M, kRows}.count(),
         .a = kRows * 4,
         .c = kRows * it.N * 4},
        {.letter = 'n',
         .extent = Blocks{it.N, kColumns}.count(),
         .b = kColumns * 4,
         .c = kColumns * 4},
        {.letter = 't', .extent = it.shifts, .c = it.M * it.N * 4},
        {.letter = 'i',
         .extent = it.images,
         .a = it.rows_a * row_a,
         .b = it.rows_b * row_b,
         .sum = true},
        {.letter = 'p', .extent = it.rows_b, .sum = true},
    };
    made.rows = {.loop = 0, .unit = kRows, .total = it.M};
    made.columns = {.loop = 1, .unit = kColumns, .total = it.N};
    made.selector_loop = 2;
    made.batch = {.loop = 3, .unit = 1, .total = it.images};
    made.entry_loop = 4;
    for (std::int64_t t = 0; t < it.shifts; ++t) {
        made.selections.push_back({.block_class = static_cast<int>(t)});
        made.classes.push_back({term_of(it, t)});
    }
    made.dtype = made.b_type = it.dtype;
    made.trans_a = true;
    made.ldb = it.N;
    made.ldc = it.N;
    made.accumulates = it.accumulate;
    made.fetching.entry_a = row_a;
    made.fetching.entry_b = row_b;
    if (it.beyond_caches) made.bytes_a = made.bytes_b = made.bytes_c = kBeyondCaches;
    return made;
}

class Operands {
public:
    Operands(const Sums& it, Fence fence, std::uint32_t seed, Values values)
        : it_(it),
          fence_(fence),
          a_(it.images * it.rows_a * kDepth * it.M, it.dtype, fence),
          b_(it.images * it.rows_b * kDepth * it.N, it.dtype, fence),
          before_(it.shifts * it.M * it.N, DType::f32, fence),
          expected_(it.shifts * it.M * it.N, DType::f32, fence) {
        Draw draw(seed);
        const std::vector<double> a = drawn(a_, it.images * it.rows_a, it.M, draw, values);
        const std::vector<double> b = drawn(b_, it.images * it.rows_b, it.N, draw, values);
        for (std::int64_t i = 0; i < it.shifts * it.M * it.N; ++i) {
            const double before = drawn_value(draw, values);
            before_.set(i, before);
            expected_.set(i, sum_at(a, b, i) + (it.accumulate ? before : 0));
        }
    }

    std::vector<std::byte> result(const ContractionPlan& plan) const {
        const Matrix c(it_.shifts * it_.M * it_.N, DType::f32, fence_);
        if (it_.accumulate) std::memcpy(c.data(), before_.data(), before_.content().size());
        plan.run({.a = a_.data(), .b = b_.data(), .c = c.data(), .accumulate = it_.accumulate},
                 nullptr, num_threads());
        return c.content();
    }
    bool is_right(const ContractionPlan& plan) const { return result(plan) == expected_.content(); }

private:
    // Blocks of kDepth rows, stored as the kernel multiplies them.
    std::vector<double> drawn(Matrix& matrix, std::int64_t blocks, std::int64_t columns, Draw& draw,
                              Values values) const {
        const std::int64_t group = elements_per_word(it_.dtype);
        std::vector<double> plain(at(blocks * kDepth * columns));
        for (std::int64_t i = 0; i < blocks * kDepth * columns; ++i) {
            const std::int64_t row = i / columns;
            plain[at(i)] = drawn_value(draw, values);
            matrix.set((row / group * columns + i % columns) * group + row % group, plain[at(i)]);
        }
        return plain;
    }

    double sum_at(const std::vector<double>& a, const std::vector<double>& b,
                  std::int64_t index) const {
        const std::int64_t t = index / (it_.M * it_.N);
        const std::int64_t m = index / it_.N % it_.M;
        double sum = 0;
        for (std::int64_t i = 0; i < it_.images * it_.rows_b * kDepth; ++i) {
            const std::int64_t image = i / kDepth / it_.rows_b;
            const std::int64_t p = i / kDepth % it_.rows_b;
            if (!it_.has_row(t, p)) continue;
            const std::int64_t row = (image * it_.rows_a + p + t - 1) * kDepth + i % kDepth;
            sum += a[at(row * it_.M + m)] * b[at(i * it_.N + index % it_.N)];
        }
        return sum;
    }

    Sums it_;
    Fence fence_;
    Matrix a_;
    Matrix b_;
    Matrix before_;
    Matrix expected_;
};

TEST_CASE("random sums by random schedules") {
    Draw draw(1);
    for (std::uint32_t turn = 0; turn < 120; ++turn) {
        Sums it{.M = draw.from(1, 14), .N = draw.from(1, 40), .images = draw.from(1, 6)};
        it.rows_a = draw.from(1, 6);
        it.rows_b = draw.from(1, 6);
        it.shifts = draw.from(1, 9);  // the last ones may reach no row
        if (draw.once_in(2)) it.dtype = DType::bf16;
        it.accumulate = draw.once_in(3);
        it.beyond_caches = draw.once_in(2);
        const Operands operands(it, turn % 2 == 0 ? Fence::after : Fence::before, turn,
                                Values::eighths);
        const Contraction contraction = contraction_of(it);
        for (int i = 0; i < 3; ++i) {
            const Schedule schedule = drawn_schedule(draw, contraction);
            CAPTURE(turn);
            CAPTURE(to_string(schedule));
            CHECK(operands.is_right(ContractionPlan(contraction, schedule)));
        }
    }
}

TEST_CASE("the bits do not depend on the number of threads") {
    const int before = num_threads();
    const Sums it{.M = 14, .N = 40, .images = 5, .rows_a = 6, .rows_b = 7, .shifts = 3};
    const Operands operands(it, Fence::after, 1, Values::reals);
    for (const char* schedule : {"M N T i9 p9", "T i M N p2", "p3 M i N T", "i2 T N p M i"}) {
        const ContractionPlan plan(contraction_of(it), parse_schedule(schedule));
        std::vector<std::byte> serial;
        for (const int threads : {1, 2, 3, 4, 5}) {
            set_num_threads(threads);
            const std::vector<std::byte> result = operands.result(plan);
            if (serial.empty()) serial = result;
            CHECK(result == serial);
        }
    }
    set_num_threads(before);
}

TEST_CASE("schedules that do not fit are refused") {
    const auto refused = [](const char* schedule, const std::string& why) {
        const Sums it{.M = 14, .N = 40, .images = 5, .rows_a = 6, .rows_b = 7, .shifts = 3};
        const std::string sentence = "schedule '" + std::string(schedule) + "': loop " + why;
        CHECK_THROWS_WITH_AS(ContractionPlan(contraction_of(it), parse_schedule(schedule)),
                             sentence.c_str(), std::invalid_argument);
    };
    const std::string shares = "adds to the same result in every step, expected a small letter";
    refused("M N T i P", "p " + shares);
    refused("I M N T p9", "i " + shares);
    refused("M N T2 i p", "t selects what is computed, expected a last step of 1");
    refused("M N T i5 p2",
            "i is gathered with another loop that is split, expected a last step of 1");
}

TEST_CASE("both operands beyond the caches are fetched ahead") {
    const Sums it{.M = 10, .N = 16, .images = 5, .rows_a = 6, .rows_b = 7, .beyond_caches = true};
    const ContractionPlan plan(contraction_of(it), parse_schedule("M N T i p2"));
    for (const std::string& name : plan.kernel_names()) {
        CHECK(name.find("_prefetchabc") != std::string::npos);
    }
}

}  // namespace
}  // namespace dlprim
