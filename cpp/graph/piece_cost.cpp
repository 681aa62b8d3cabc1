#include "graph/piece_cost.h"

#include <algorithm>

#include "primitives/nest/schedule_cost.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {
namespace {

// Rows enough for a kernel to do much with weights that it reads, and few enough to stay in caches
// with them; and pieces enough to save anything.
constexpr std::int64_t kRows = 64;
constexpr std::int64_t kRowsOfFour = 48;
constexpr std::int64_t kManyPieces = 32;
// Of many pieces, what sixteen threads share evenly, and rows that are as good as kRows.
constexpr std::int64_t kSharers = 16;
constexpr std::int64_t kFewestOfMany = 52;
constexpr std::int64_t kMostOfMany = 72;
constexpr std::int64_t kLeastPieces = 2;
// Cycles: what threads lose where they meet, and what a step of a piece takes beside its work.
constexpr double kMeeting = 10e3;
constexpr double kStep = 1e3;
// Of the time of the products, what pieces have to save: less is lost in what is not counted.
constexpr double kLeastGain = 0.005;

double most_of_neighbours(const RowChain& chain) {
    double most = 0;
    for (std::size_t i = 1; i < chain.row_bytes.size(); ++i) {
        most = std::max(most, chain.row_bytes[i - 1] + chain.row_bytes[i]);
    }
    return most;
}

std::int64_t divided_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

// Rows of pieces that are as equal as can be, none larger than kRows, and of which two or four
// threads have equal shares where that leaves them rows enough: 196 rows are four pieces of 49, not
// three of 64 and one of 4, which one thread has to wait for. Of many pieces sixteen threads have
// equal shares: 3152 rows are 48 pieces of 66, not 49 of 64 and a rest, for which two of them work
// while the others wait.
std::int64_t equal_rows(std::int64_t rows) {
    const std::int64_t pieces = divided_up(rows, kRows);
    if (pieces >= kManyPieces) {
        const std::int64_t shares = std::max<std::int64_t>(rows / (kRows * kSharers), 1);
        for (const std::int64_t each : {shares, shares + 1}) {
            const std::int64_t of_each = divided_up(rows, each * kSharers);
            if (of_each >= kFewestOfMany && of_each <= kMostOfMany) return of_each;
        }
        return kRows;
    }
    const std::int64_t of_four = divided_up(rows, rounded_up(pieces, 4));
    const std::int64_t of_two = divided_up(rows, rounded_up(pieces, 2));
    return of_four >= kRowsOfFour ? of_four : of_two;
}

}  // namespace

double cycles_saved(const RowChain& chain, std::int64_t rows, const Machine& machine) {
    const auto all = static_cast<double>(chain.rows), piece = static_cast<double>(rows);
    const double pieces = all / piece;
    const auto steps = static_cast<double>(chain.row_bytes.size()) - 1;
    // What is written and read between the steps.
    double between_l2 = 0, between_l3 = 0;
    for (std::size_t i = 1; i + 1 < chain.row_bytes.size(); ++i) {
        const double bytes = all * chain.row_bytes[i];
        if (bytes > usable(machine.l2)) between_l2 += 2 * bytes;
        if (bytes > usable(machine.l3)) between_l3 += 2 * bytes;
    }
    // Of the weights, what each piece has to fetch from memory again. What comes from the L3 cache
    // again is not counted: a product of all rows reads rows or weights again as often.
    const double over = chain.weights + piece * most_of_neighbours(chain) - usable(machine.l3);
    const double again = (pieces - 1) * std::clamp(over, 0.0, chain.weights);
    const bool meet = worth_of_threads(all * chain.flops / steps, 0) >= 1;
    return cycles_beyond_l2(between_l2, between_l3) + (meet ? (steps - 1) * kMeeting : 0) -
           cycles_beyond_l2(again, again) - pieces * steps * kStep;
}

ImagePieces image_pieces(std::int64_t images, const std::vector<ImageStep>& steps,
                         const Machine& machine) {
    double most = 1;
    for (const ImageStep& it : steps) most = std::max(most, it.read + it.written);
    const double l2 = usable(machine.l2), l3 = usable(machine.l3);
    const std::int64_t enough = std::max<std::int64_t>(images / kLeastPieces, 1);
    const auto piece = std::clamp<std::int64_t>(static_cast<std::int64_t>(l2 / most), 1, enough);
    const auto all = static_cast<double>(images), part = static_cast<double>(piece);
    const double pieces = all / part;
    ImagePieces made;
    double saved = 0, best = 0, weights = 0;
    for (std::size_t i = 0; images >= kLeastPieces && i < steps.size(); ++i) {
        const ImageStep& it = steps[i];
        weights += it.weights;
        const double lost = std::clamp(weights + part * most - l3, 0.0, it.weights);
        saved -= pieces * kStep + cycles_beyond_l2((pieces - 1) * it.weights, (pieces - 1) * lost);
        if (it.ends && i > 0 && saved > best) {
            best = saved;
            made = {.steps = static_cast<std::int64_t>(i) + 1, .images = piece};
        }
        // Written and read again, from beyond a cache that holds a piece of it and not all.
        const double bytes = 2 * all * it.written, live = it.read + it.written;
        const auto stays = [&](double cache) {
            return all * it.written > cache && part * live <= cache;
        };
        saved += cycles_beyond_l2(stays(l2) ? bytes : 0, stays(l3) ? bytes : 0);
    }
    return made;
}

std::int64_t rows_of_piece(const RowChain& chain, const Machine& machine) {
    const double least = kLeastGain * static_cast<double>(chain.rows) * chain.flops /
                         flops_per_cycle(chain.dtype, machine);
    const bool pays =
        chain.rows >= kLeastPieces * kRows && cycles_saved(chain, kRows, machine) > least;
    return pays ? equal_rows(chain.rows) : 0;
}

}  // namespace dlprim
