// The driver on a matrix product. Small eighths, so every order of summation gives the same float32
// sum.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "contraction_problem.h"
#include "jit/isa.h"
#include "primitives/nest/contraction_builder.h"
#include "primitives/nest/contraction_plan.h"
#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

using testing::at;
using testing::Draw;
using testing::drawn_value;
using testing::Fence;
using testing::GuardedBytes;
using testing::Matrix;
using testing::Values;

constexpr std::int64_t kColumns = 16;
constexpr std::int64_t kDepth = 6;
constexpr double kBeyondCaches = 1e12;

// C[M][N] = relu(A * B + bias + residual) or a part of that.
struct Product {
    std::int64_t M = 1;
    std::int64_t N = 1;
    std::int64_t K = 1;
    std::int64_t row_unit = 1;
    std::int64_t column_unit = kColumns;
    DType dtype = DType::f32;
    DType c_type = DType::f32;
    Epilogue epilogue = {};
    bool accumulate = false;
    bool beyond_caches = false;

    std::int64_t ldc() const { return N + 3; }
    std::int64_t ldmask() const { return (ldc() + 7) / 8; }
};

Contraction contraction_of(const Product& it) {
    const std::int64_t element = size_of(it.dtype);
    const std::int64_t result = size_of(it.c_type);
    const auto blocks = [](std::int64_t total, std::int64_t unit) {
        return Blocks{total, unit}.count();
    };
    Contraction made;
    made.loops = {
        {.letter = 'm',
         .extent = blocks(it.M, it.row_unit),
         .a = it.row_unit * it.K * element,
         .c = it.row_unit * it.ldc() * result},
        {.letter = 'n',
         .extent = blocks(it.N, it.column_unit),
         .b = it.column_unit * 4,
         .c = it.column_unit * result,
         .bias = it.column_unit * 4},
        {.letter = 'k',
         .extent = blocks(it.K, kDepth),
         .a = kDepth * element,
         .b = kDepth * element * it.N,
         .sum = true},
    };
    made.rows = {.loop = 0, .unit = it.row_unit, .total = it.M};
    made.columns = {.loop = 1, .unit = it.column_unit, .total = it.N};
    made.batch = {.loop = 2, .unit = kDepth, .total = it.K};
    made.selections = {{}};
    made.classes = {
        {{.lda = it.K, .entries_a = {0}, .entries_b = {0}, .first = true, .last = true}}};
    made.dtype = made.b_type = it.dtype;
    made.c_type = it.c_type;
    made.ldb = it.N;
    made.ldc = it.ldc();
    made.accumulates = it.accumulate;
    made.epilogue = it.epilogue;
    if (it.beyond_caches) made.bytes_a = made.bytes_b = made.bytes_c = kBeyondCaches;
    return made;
}

// Its operands, and what C and the mask become.
class Operands {
public:
    Operands(const Product& it, Fence fence, std::uint32_t seed, Values values = Values::eighths)
        : it_(it),
          fence_(fence),
          a_(it.M * it.K, it.dtype, fence),
          b_(rows_of_b() * it.N, it.dtype, fence),
          bias_(it.N, DType::f32, fence),
          residual_(c_elements(), it.c_type, fence),
          before_(c_elements(), it.c_type, fence),
          expected_(c_elements(), it.c_type, fence),
          mask_(at(it.M * it.ldmask())) {
        Draw draw(seed);
        const auto drawn = [&](Matrix& matrix, std::int64_t elements, const auto& place) {
            std::vector<double> plain(at(elements));
            for (std::int64_t i = 0; i < elements; ++i) {
                plain[at(i)] = drawn_value(draw, values);
                matrix.set(place(i), plain[at(i)]);
            }
            return plain;
        };
        const auto same = [](std::int64_t i) { return i; };
        const auto in_b = [&](std::int64_t i) { return place_in_b(i); };
        const auto in_c = [&](std::int64_t i) { return i / it_.N * it_.ldc() + i % it_.N; };
        const Plain plain{.a = drawn(a_, it.M * it.K, same),
                          .b = drawn(b_, it.K * it.N, in_b),
                          .bias = drawn(bias_, it.N, same),
                          .residual = drawn(residual_, it.M * it.N, in_c),
                          .before = drawn(before_, it.accumulate ? it.M * it.N : 0, in_c)};
        for (std::int64_t i = 0; i < it.M * it.N; ++i) expected_.set(in_c(i), expected(plain, i));
    }

    // What differs from what is expected, also between the rows; empty when nothing does.
    std::string mismatch(const ContractionPlan& plan) const {
        std::vector<std::uint8_t> mask(mask_.size());
        if (result(plan, mask) != expected_.content()) return "C is wrong";
        return it_.epilogue.relu_mask && mask != mask_ ? "the mask is wrong" : "";
    }

    // The bytes of C, and of the mask.
    std::vector<std::byte> result(const ContractionPlan& plan,
                                  std::vector<std::uint8_t>& masks) const {
        const Matrix c(c_elements(), it_.c_type, fence_);
        std::memcpy(c.data(), before_.data(), at(c_elements() * size_of(it_.c_type)));
        const GuardedBytes mask(static_cast<std::int64_t>(mask_.size()), fence_);
        const GuardedBytes scratch(plan.scratch_bytes() * num_threads(), Fence::after);
        const bool masked = it_.epilogue.relu_mask;
        plan.run({.a = a_.data(),
                  .b = b_.data(),
                  .c = c.data(),
                  .bias = it_.epilogue.bias ? static_cast<const float*>(bias_.data()) : nullptr,
                  .residual = it_.epilogue.residual ? residual_.data() : nullptr,
                  .relu_mask = masked ? reinterpret_cast<std::uint8_t*>(mask.data()) : nullptr,
                  .accumulate = it_.accumulate},
                 scratch.data(), num_threads());
        std::copy_n(reinterpret_cast<const std::uint8_t*>(mask.data()), masks.size(),
                    masks.begin());
        return c.content();
    }

private:
    struct Plain {
        std::vector<double> a;
        std::vector<double> b;
        std::vector<double> bias;
        std::vector<double> residual;
        std::vector<double> before;
    };

    double expected(const Plain& plain, std::int64_t index) {
        const std::int64_t row = index / it_.N;
        const std::int64_t column = index % it_.N;
        double sum = it_.accumulate ? plain.before[at(index)] : 0;
        for (std::int64_t k = 0; k < it_.K; ++k) {
            sum += plain.a[at(row * it_.K + k)] * plain.b[at(k * it_.N + column)];
        }
        if (it_.epilogue.bias) sum += plain.bias[at(column)];
        if (it_.epilogue.residual) sum += plain.residual[at(index)];
        std::uint8_t& bits = mask_[at(row * it_.ldmask() + column / 8)];
        if (sum > 0) bits = static_cast<std::uint8_t>(bits | 1U << column % 8);
        return it_.epilogue.activation == Activation::relu ? std::max(sum, 0.0) : sum;
    }
    std::int64_t rows_of_b() const {
        const std::int64_t group = elements_per_word(it_.dtype);
        return (it_.K + group - 1) / group * group;
    }
    std::int64_t c_elements() const { return (it_.M - 1) * it_.ldc() + it_.N; }
    std::int64_t place_in_b(std::int64_t index) const {
        const std::int64_t group = elements_per_word(it_.dtype);
        const std::int64_t k = index / it_.N;
        return (k / group * it_.N + index % it_.N) * group + k % group;
    }

    Product it_;
    Fence fence_;
    Matrix a_;
    Matrix b_;
    Matrix bias_;
    Matrix residual_;
    Matrix before_;
    Matrix expected_;
    std::vector<std::uint8_t> mask_;
};

Product drawn_product(Draw& draw) {
    Product it{.M = draw.from(1, 40), .N = draw.from(1, 50), .K = draw.from(1, 40)};
    it.row_unit = draw.once_in(2) ? 1 : draw.from(2, 9);
    if (draw.once_in(2)) {
        it.dtype = DType::bf16;
        it.c_type = draw.once_in(3) ? DType::f32 : DType::bf16;
    }
    it.accumulate = it.c_type == DType::f32 && draw.once_in(3);
    it.epilogue = {.bias = draw.once_in(2), .residual = draw.once_in(3)};
    if (draw.once_in(2)) it.epilogue.activation = Activation::relu;
    it.epilogue.relu_mask = it.epilogue.activation == Activation::relu && draw.once_in(2);
    it.beyond_caches = draw.once_in(2);
    return it;
}

TEST_CASE("random products by random schedules") {
    Draw draw(1);
    for (std::uint32_t turn = 0; turn < 150; ++turn) {
        const Product it = drawn_product(draw);
        const Operands operands(it, turn % 2 == 0 ? Fence::after : Fence::before, turn);
        const Contraction contraction = contraction_of(it);
        for (int i = 0; i < 3; ++i) {
            const Schedule schedule = drawn_schedule(draw, contraction);
            CAPTURE(turn);
            CAPTURE(to_string(schedule));
            CHECK(operands.mismatch(ContractionPlan(contraction, schedule)) == "");
        }
    }
}

TEST_CASE("the bits do not depend on the number of threads") {
    const int before = num_threads();
    for (const DType dtype : {DType::f32, DType::bf16}) {
        const Product it{.M = 37, .N = 50, .K = 40, .dtype = dtype, .c_type = dtype};
        const Operands operands(it, Fence::after, 1, Values::reals);
        const bool whole = dtype == DType::bf16;
        for (const char* schedule : {"M5 N k9", "m20 k9 N M3", "N m k9", "m k9 n"}) {
            std::string text = schedule;
            if (!whole) text += " k2";
            const ContractionPlan plan(contraction_of(it), parse_schedule(text));
            std::vector<std::uint8_t> mask;
            std::vector<std::byte> serial;
            for (const int threads : {1, 2, 3, 4, 5}) {
                set_num_threads(threads);
                const std::vector<std::byte> result = operands.result(plan, mask);
                if (serial.empty()) serial = result;
                CHECK(result == serial);
            }
        }
    }
    set_num_threads(before);
}

TEST_CASE("random products in parts of columns") {
    Draw draw(2);
    for (std::uint32_t turn = 0; turn < 60; ++turn) {
        Product it = drawn_product(draw);
        it.N = draw.from(1, 150);
        it.column_unit = 16 * draw.from(2, 5);
        const Operands operands(it, turn % 2 == 0 ? Fence::after : Fence::before, turn);
        const Contraction whole = contraction_of(it);
        const Schedule schedule = drawn_schedule(draw, whole);
        for (const std::int64_t parts : parts_of_columns(whole)) {
            const Schedule of_parts = with_parts_of_columns(whole, schedule);
            CAPTURE(turn);
            CAPTURE(to_string(of_parts));
            const ContractionPlan plan(in_parts_of_columns(whole, parts), of_parts);
            CHECK(operands.mismatch(plan) == "");
        }
    }
}

TEST_CASE("blocks of columns are cut into whole cache lines") {
    const auto parts = [](std::int64_t N, std::int64_t unit) {
        return parts_of_columns(contraction_of({.N = N, .column_unit = unit}));
    };
    CHECK(parts(640, 64) == std::vector<std::int64_t>{2, 4});
    CHECK(parts(640, 80) == std::vector<std::int64_t>{5});
    CHECK(parts(640, 16).empty());
    CHECK(parts(40, 40) == std::vector<std::int64_t>{2, 3});  // of 32 and 8, of 16, 16 and 8
    CHECK(parts(80, 40).empty());
    Contraction gaps = contraction_of({.N = 64, .column_unit = 64});
    gaps.gaps = {.rows = 1};
    CHECK(parts_of_columns(gaps).empty());
}

TEST_CASE("threads that would wait get parts of columns") {
    Contraction it = contraction_of({.M = 48, .N = 320, .K = 12, .column_unit = 64});
    const auto tasks = [&](double flops, int threads) {
        it.flops = flops;
        const ContractionPlan plan(it, parse_schedule("N m48 k2"));
        const ContractionPlan& shared = plan.for_threads(threads);
        CHECK(&shared == &plan.for_threads(threads));
        return shared.nest().tasks();
    };
    CHECK(tasks(1e9, 1) == 5);
    CHECK(tasks(1e9, 5) == 5);
    CHECK(tasks(1e9, 2) == (usable_isa() >= Isa::avx512 ? 10 : 5));  // worth narrower kernels
    CHECK(tasks(1e9, 4) == 20);
    CHECK(tasks(1e9, 10) == 10);
    CHECK(tasks(1e5, 2) == 5);
}

TEST_CASE("operands beyond the caches are fetched ahead") {
    Product it{.M = 30, .N = 20, .K = 12};
    for (const bool beyond : {false, true}) {
        it.beyond_caches = beyond;
        const ContractionPlan plan(contraction_of(it), parse_schedule("M7 N k"));
        const std::vector<std::string> names = plan.kernel_names();
        CHECK(std::is_sorted(names.begin(), names.end()));
        CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
        CHECK(names.size() == 8);  // heights 7 and 2, widths 16 and 4, first of the sum and not
        for (const std::string& name : names) {
            CHECK((name.find("_prefetchac") != std::string::npos) == beyond);
        }
    }
}

TEST_CASE("the rows that use a block of B share the fetching of the next one") {
    const auto rows_that_share = [](const char* schedule, double bytes = kBeyondCaches) {
        Contraction it = contraction_of({.M = 30, .N = 40, .K = 12});
        it.fetching.far_b = true;
        it.bytes_b = bytes;
        const std::string name = ContractionPlan(it, parse_schedule(schedule)).kernel_names()[0];
        return name.substr(name.rfind('_'));
    };
    CHECK(rows_that_share("N m7 k2") == "_fetch30");
    CHECK(rows_that_share("m14 N m7 k2") == "_fetch14");
    CHECK(rows_that_share("M7 N k2") == "_fetch7");
    CHECK(rows_that_share("N m15 k1 m5") == "_fetch15");
    CHECK(rows_that_share("N m7 k2", 1e3) == "_fetch30");
    CHECK(rows_that_share("M7 N k2", 1e3) == "_beta0");  // B is near once it was used
}

TEST_CASE("threads share rows although columns come first where B is small") {
    constexpr std::size_t kRows = 0, kFirstColumns = 1;
    Contraction it = contraction_of({.M = 64, .N = 64, .K = 12});
    it.bytes_a = 4000;
    const auto shared = [&](double bytes_b, const char* schedule) {
        it.bytes_b = bytes_b;
        return ContractionPlan(it, parse_schedule(schedule)).nest().outermost_shared();
    };
    CHECK(shared(6000, "N M8 k") == kRows);
    CHECK(shared(6001, "N M8 k") == kFirstColumns);
    CHECK(shared(6000, "N M7 k") == kFirstColumns);  // whose last piece is smaller
    CHECK(shared(6000, "N m8 k") == kFirstColumns);
    it.bytes_a = kBeyondCaches;
    CHECK(shared(kBeyondCaches, "N M8 k") == kFirstColumns);
}

TEST_CASE("schedules that do not fit are refused") {
    const auto refused = [](const Product& it, const char* schedule, const std::string& why) {
        const std::string sentence = "schedule '" + std::string(schedule) + "': loop " + why;
        CHECK_THROWS_WITH_AS(ContractionPlan(contraction_of(it), parse_schedule(schedule)),
                             sentence.c_str(), std::invalid_argument);
    };
    const Product floats{.M = 30, .N = 60, .K = 40};
    Product blocks = floats;
    blocks.row_unit = 4;
    Product halves = floats;
    halves.dtype = halves.c_type = DType::bf16;
    const std::string shares = "k adds to the same result in every step, expected a small letter";
    refused(floats, "M N K", shares);
    refused(floats, "K4 M N k", shares);
    refused(floats, "M N2 k", "n counts blocks of columns, expected a last step of 1");
    refused(blocks, "M2 N k", "m counts blocks of rows, expected a last step of 1");
    refused(halves, "M N k4",
            "k is split, expected one step over all of it: a result that is no float32 is rounded "
            "once");
    CHECK_NOTHROW(ContractionPlan(contraction_of(blocks), parse_schedule("M2 N2 k4 M N")));
    CHECK_NOTHROW(ContractionPlan(contraction_of(halves), parse_schedule("M9 N k7")));
    CHECK_THROWS_AS(ContractionPlan(contraction_of(floats), parse_schedule("M N")),
                    std::invalid_argument);
}

}  // namespace
}  // namespace dlprim
