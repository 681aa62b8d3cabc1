// Steps that run for pieces of rows, against the same steps on all rows, and when they do.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "graph/network.h"
#include "graph/piece_cost.h"
#include "graph/piece_step.h"
#include "primitives/tensor/parallel.h"

using namespace dlprim;

namespace {

constexpr std::int64_t kColumns = 5;

NetworkTensor floats(std::int64_t rows, std::int64_t columns = kColumns) {
    return dense_tensor("float32", 4, {rows, columns});
}

// Each row summed up from the left, and in the other element of dst twice that.
NetworkStep sums(int src, int dst, std::int64_t rows) {
    return {.kind = "sums",
            .label = "sums",
            .reads = {src},
            .writes = {dst},
            .flops = static_cast<double>(rows) * kColumns,
            .run = [=](const Addresses& at) {
                const auto* const from = reinterpret_cast<const float*>(at[src].data);
                auto* const to = reinterpret_cast<float*>(at[dst].data);
                for (std::int64_t row = 0; row < rows; ++row) {
                    float sum = 0;
                    for (std::int64_t i = 0; i < kColumns; ++i) sum += from[row * kColumns + i];
                    to[2 * row] = sum;
                    to[2 * row + 1] = 2 * sum;
                }
            }};
}

NetworkStep negated(int src, int dst, std::int64_t elements) {
    return {.kind = "negated",
            .label = "negated",
            .reads = {src},
            .writes = {dst},
            .run = [=](const Addresses& at) {
                const auto* const from = reinterpret_cast<const float*>(at[src].data);
                auto* const to = reinterpret_cast<float*>(at[dst].data);
                std::transform(from, from + elements, to, [](float it) { return -it; });
            }};
}

std::unique_ptr<Network> network_of(std::int64_t rows) {
    auto made = std::make_unique<Network>();
    const int x = made->input(floats(rows));
    const int between = made->temporary(floats(rows));
    const int y = made->temporary(floats(rows, 2));
    made->add(negated(x, between, rows * kColumns));
    made->add(sums(between, y, rows));
    made->finish({y});
    return made;
}

std::vector<float> run(const Network& network, std::int64_t rows) {
    std::vector<float> x(static_cast<std::size_t>(rows * kColumns));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 101) / 8;
    std::vector<float> y(static_cast<std::size_t>(2 * rows), -1);
    const std::vector<const void*> inputs{x.data()};
    const std::vector<void*> results{y.data()};
    network.run({inputs, results});
    return y;
}

// A network of one step in pieces.
class Pieces {
public:
    Pieces(std::int64_t rows, std::int64_t of_piece, std::int64_t left)
        : piece_(network_of(of_piece)), rest_(left == 0 ? nullptr : network_of(left)) {
        const int x = whole_.input(floats(rows));
        const int y = whole_.temporary(floats(rows, 2));
        whole_.add(piece_step(
            whole_, {.piece = *piece_, .rest = rest_.get(), .inputs = {x}, .results = {y}},
            "chain"));
        whole_.finish({y});
    }

    const Network& network() const { return whole_; }

private:
    std::unique_ptr<Network> piece_, rest_;
    Network whole_ = {};
};

std::string refusal(std::int64_t rows, std::int64_t of_piece, std::int64_t left) {
    try {
        const Pieces pieces(rows, of_piece, left);
    } catch (const std::invalid_argument& error) {
        return error.what();
    }
    return "";
}

RowChain perceptron(std::int64_t rows, const std::vector<double>& channels) {
    RowChain chain{.rows = rows};
    for (const double it : channels) chain.row_bytes.push_back(4 * it);
    for (std::size_t i = 1; i < channels.size(); ++i) {
        chain.flops += 2 * channels[i - 1] * channels[i];
        chain.weights += 4 * channels[i - 1] * channels[i];
    }
    return chain;
}

constexpr Machine kCaches{.l1 = 32e3, .l2 = 1e6, .l3 = 32e6};

}  // namespace

TEST_CASE("pieces give what all rows give, on any number of threads") {
    const int before = num_threads();
    for (const auto& [rows, of_piece] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 1}, {64, 32}, {97, 16}, {5003, 64}}) {
        const std::vector<float> expected = run(*network_of(rows), rows);
        const Pieces pieces(rows, of_piece, rows % of_piece);
        for (const int threads : {1, 2, 3, 4}) {
            set_num_threads(threads);
            CHECK(run(pieces.network(), rows) == expected);
        }
    }
    set_num_threads(before);
}

TEST_CASE("a network says what its pieces are made of, and what they take") {
    const Pieces pieces(97, 16, 1);
    const std::string text = pieces.network().described();
    CHECK(text.find("chain: pieces(0") != std::string::npos);
    CHECK(text.find("6 pieces and a rest") != std::string::npos);
    CHECK(text.find("    negated: negated(0") != std::string::npos);
    CHECK(pieces.network().flops() == 97 * kColumns);
    CHECK(pieces.network().planned_bytes() == 0);
    CHECK_FALSE(pieces.network().runs_alone());
}

TEST_CASE("what is not whole pieces and one rest is refused with its value") {
    CHECK(refusal(97, 16, 1).empty());
    CHECK(refusal(96, 16, 1) ==
          "step chain (pieces): value 0 is float32 (96, 5), expected 5 times float32 (16, 5) and "
          "a rest in C order");
    CHECK(refusal(97, 16, 0) ==
          "step chain (pieces): value 0 is float32 (97, 5), expected 6 times float32 (16, 5) in C "
          "order");
    CHECK(refusal(8, 16, 0).find("expected 0 times") != std::string::npos);
    CHECK(refusal(8, 16, 8).find("expected 0 times") != std::string::npos);
}

TEST_CASE("a piece has the inputs and results of the step, is finished, and calls no one else") {
    Network whole;
    const int x = whole.input(floats(8));
    const int y = whole.temporary(floats(8, 2));
    const auto piece = network_of(4);
    CHECK_THROWS_WITH_AS(
        piece_step(whole, {.piece = *piece, .inputs = {x, x}, .results = {y}}, "chain"),
        "step chain (pieces): a piece has other inputs and results, or is not finished",
        std::invalid_argument);
    Network called;
    const int from = called.input(floats(4));
    const int to = called.temporary(floats(4, 2));
    NetworkStep step = sums(from, to, 4);
    step.alone = true;
    called.add(step);
    called.finish({to});
    CHECK_THROWS_WITH_AS(
        piece_step(whole, {.piece = called, .inputs = {x}, .results = {y}}, "chain"),
        "step chain (pieces): a piece has steps that run alone", std::invalid_argument);
}

TEST_CASE("what goes wrong in a piece names the step and the chain") {
    Network piece;
    const int from = piece.input(floats(4));
    const int to = piece.temporary(floats(4, 2));
    piece.add({.kind = "faulty",
               .label = "inner",
               .reads = {from},
               .writes = {to},
               .run = [](const Addresses&) { throw std::invalid_argument("no"); }});
    piece.finish({to});
    Network whole;
    const int x = whole.input(floats(8));
    const int y = whole.temporary(floats(8, 2));
    whole.add(piece_step(whole, {.piece = piece, .inputs = {x}, .results = {y}}, "chain"));
    whole.finish({y});
    try {
        run(whole, 8);
        FAIL("nothing was thrown");
    } catch (const std::exception& error) {
        const std::string words = error.what();
        CHECK(words.find("inner") != std::string::npos);
        CHECK(words.find("chain") != std::string::npos);
    }
}

TEST_CASE("images run in pieces as far as arrays of all of them leave a cache that holds one's") {
    constexpr double kMega = 1e6;
    // A mobile network's: large arrays and few weights, then small arrays and many.
    const std::vector<ImageStep> steps{{1e3, 0.6 * kMega, 4.8 * kMega, true},
                                       {1e3, 4.8 * kMega, 1.2 * kMega, true},
                                       {1e4, 1.2 * kMega, 0.1 * kMega, true},
                                       {8 * kMega, 0.1 * kMega, 0.1 * kMega, true}};
    CHECK(image_pieces(32, steps, kCaches) == ImagePieces{3, 1});
    CHECK(image_pieces(1, steps, kCaches) == ImagePieces{});
    CHECK(image_pieces(0, steps, kCaches) == ImagePieces{});
    CHECK(image_pieces(32, {}, kCaches) == ImagePieces{});
    auto open = steps;
    open[2].ends = false;
    CHECK(image_pieces(32, open, kCaches) == ImagePieces{2, 1});
    // The second cache holds several images, but all of them as well.
    const std::vector<ImageStep> small(3, {1e3, 1e4, 1e4, true});
    CHECK(image_pieces(32, small, kCaches) == ImagePieces{});
    CHECK(image_pieces(512, small, kCaches) == ImagePieces{3, 37});
}

TEST_CASE(
    "pieces pay where weights stay in the third cache and what is between leaves the second") {
    const std::vector<double> small{13, 512, 256, 128};
    CHECK(rows_of_piece(perceptron(4096, small), kCaches) == 64);
    CHECK(rows_of_piece(perceptron(128, small), kCaches) == 64);  // threads meet once
    CHECK(rows_of_piece(perceptron(32, small), kCaches) == 0);
    CHECK(rows_of_piece(perceptron(1, small), kCaches) == 0);
    // Equal ones, four or two of them where that leaves rows enough.
    CHECK(rows_of_piece(perceptron(196, small), kCaches) == 49);
    CHECK(rows_of_piece(perceptron(784, small), kCaches) == 49);
    CHECK(rows_of_piece(perceptron(200, small), kCaches) == 50);
    CHECK(rows_of_piece(perceptron(130, small), kCaches) == 33);
    CHECK(rows_of_piece(perceptron(160, small), kCaches) == 40);
    // Sixteen threads have equal shares of many.
    CHECK(rows_of_piece(perceptron(3136, small), kCaches) == 66);
    CHECK(rows_of_piece(perceptron(3152, small), kCaches) == 66);
    CHECK(rows_of_piece(perceptron(2560, small), kCaches) == 54);
    CHECK(rows_of_piece(perceptron(2752, small), kCaches) == 58);
    CHECK(rows_of_piece(perceptron(512, {768, 3072, 768}), kCaches) == 64);
    CHECK(rows_of_piece(perceptron(127, {768, 3072, 768}), kCaches) == 0);
    // Each piece would fetch weights from memory again.
    CHECK(rows_of_piece(perceptron(512, {1024, 4096, 4096, 1024}), kCaches) == 0);
    // All of it stays in the cache of a core as it is.
    CHECK(rows_of_piece(perceptron(2048, {64, 64, 64, 64}), kCaches) == 0);
    CHECK(rows_of_piece(perceptron(256, {16, 16, 16, 16}), kCaches) == 0);
    constexpr Machine endless{.l1 = 1e15, .l2 = 1e15, .l3 = 1e15};
    CHECK(cycles_saved(perceptron(4096, small), 64, kCaches) >
          cycles_saved(perceptron(4096, small), 64, endless));
}
