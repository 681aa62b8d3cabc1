#include "graph/functions/routed_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <utility>

#include "graph/network.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/workspace.h"

namespace dlprim {
namespace {

struct Piece {
    std::size_t expert, size;   // places among those
    std::int64_t first, count;  // in the list of routed rows
    std::int64_t place;         // in scratch, in rows
};

class RoutedRun {
public:
    RoutedRun(const Network& network, const RoutedRows& routed) : it_(routed) {
        const NetworkTensor &rows = network.tensor(routed.rows),
                            &shares = network.tensor(routed.shares),
                            &dst = network.tensor(routed.dst);
        const auto experts = static_cast<std::int64_t>(routed.experts.size());
        bool fits = rows.shape.size() == 2 && dst.shape.size() == 2 && shares.shape.size() == 2 &&
                    shares.shape[0] == experts && shares.shape[1] == rows.shape[0] &&
                    dst.shape[0] == rows.shape[0] && !routed.sizes.empty() &&
                    routed.sizes[0] == 1 && experts > 0;
        for (const NetworkTensor* const each : {&rows, &shares, &dst}) {
            fits = fits && each->is_dense() && each->dtype == "float32";
        }
        for (std::size_t i = 0; fits && i < routed.experts.size(); ++i) {
            fits = takes_pieces(routed.experts[i], rows.shape[1], dst.shape[1]);
        }
        if (!fits) {
            throw std::invalid_argument("routed rows are " + rows.described() + ", shares " +
                                        shares.described() + ", results " + dst.described() +
                                        ", expected (rows, C), (experts, rows) and (rows, K) of "
                                        "float32, and networks of such rows");
        }
        count_ = rows.shape[0];
        columns_ = rows.shape[1];
        results_ = dst.shape[1];
    }

    // Of all rows through one expert.
    double flops() const {
        return static_cast<double>(count_) * it_.experts.front().front()->flops();
    }

    void run(const Addresses& at) const {
        const float* const shares = at[it_.shares];
        std::vector<std::int64_t> rows;
        std::vector<Piece> pieces;
        std::int64_t places = 0;
        for (std::size_t expert = 0; expert < it_.experts.size(); ++expert) {
            const auto first = static_cast<std::int64_t>(rows.size());
            const float* const own = shares + static_cast<std::int64_t>(expert) * count_;
            for (std::int64_t row = 0; row < count_; ++row) {
                if (own[row] != 0) rows.push_back(row);
            }
            places = cut(expert, first, static_cast<std::int64_t>(rows.size()), places, pieces);
        }
        const std::int64_t bytes = 4 * places * (columns_ + results_);
        const WorkspacePool::Lease own(WorkspacePool::lasting(), bytes);
        auto* const from = reinterpret_cast<float*>(own.data());
        float* const to = from + places * columns_;
        const WorkOf work(flops() * static_cast<double>(places), static_cast<double>(bytes));
        parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t number) {
            const Piece& piece = pieces[static_cast<std::size_t>(number)];
            run_piece(piece, rows, at[it_.rows], from + piece.place * columns_,
                      to + piece.place * results_);
        });
        sum(at, rows, pieces, to);
    }

private:
    bool takes_pieces(const std::vector<const Network*>& networks, std::int64_t columns,
                      std::int64_t results) const {
        bool fits = networks.size() == it_.sizes.size();
        for (std::size_t i = 0; fits && i < networks.size(); ++i) {
            const Network& each = *networks[i];
            fits = each.is_finished() && !each.runs_alone() && each.inputs().size() == 1 &&
                   each.results().size() == 1;
            if (!fits) break;
            using Shape = std::vector<std::int64_t>;
            const NetworkTensor &x = each.tensor(each.inputs()[0]),
                                &y = each.tensor(each.results()[0]);
            fits = x.shape == Shape{it_.sizes[i], columns} && x.dtype == "float32" &&
                   y.shape == Shape{it_.sizes[i], results} && y.dtype == "float32";
        }
        return fits;
    }

    // Pieces of the sizes there are; one that is not full where it is more than half full.
    std::int64_t cut(std::size_t expert, std::int64_t first, std::int64_t end, std::int64_t place,
                     std::vector<Piece>& pieces) const {
        while (first < end) {
            const std::int64_t left = end - first;
            const auto above = std::lower_bound(it_.sizes.begin(), it_.sizes.end(), left);
            auto size = static_cast<std::size_t>(above - it_.sizes.begin());
            if (size == it_.sizes.size() || 2 * left <= it_.sizes[size]) --size;
            const std::int64_t count = std::min(left, it_.sizes[size]);
            pieces.push_back({expert, size, first, count, place});
            place += it_.sizes[size];
            first += count;
        }
        return place;
    }

    void run_piece(const Piece& piece, const std::vector<std::int64_t>& rows, const float* src,
                   float* from, float* to) const {
        for (std::int64_t i = 0; i < piece.count; ++i) {
            const std::int64_t row = rows[static_cast<std::size_t>(piece.first + i)];
            std::copy_n(src + row * columns_, columns_, from + i * columns_);
        }
        std::fill_n(from + piece.count * columns_, (it_.sizes[piece.size] - piece.count) * columns_,
                    0.0F);
        std::array<char*, 2> arrays{reinterpret_cast<char*>(from), reinterpret_cast<char*>(to)};
        it_.experts[piece.expert][piece.size]->run(arrays.data());
    }

    void sum(const Addresses& at, const std::vector<std::int64_t>& rows,
             const std::vector<Piece>& pieces, const float* made) const {
        const float* const shares = at[it_.shares];
        float* const dst = at[it_.dst];
        std::fill_n(dst, count_ * results_, 0.0F);
        for (const Piece& piece : pieces) {
            const float* const own = shares + static_cast<std::int64_t>(piece.expert) * count_;
            for (std::int64_t i = 0; i < piece.count; ++i) {
                const std::int64_t row = rows[static_cast<std::size_t>(piece.first + i)];
                const float* const from = made + (piece.place + i) * results_;
                float* const to = dst + row * results_;
                for (std::int64_t k = 0; k < results_; ++k) to[k] += own[row] * from[k];
            }
        }
    }

    RoutedRows it_;
    std::int64_t count_ = 0, columns_ = 0, results_ = 0;
};

}  // namespace

NetworkStep routed_rows_step(const Network& network, const RoutedRows& routed, std::string label) {
    const RoutedRun made(network, routed);
    return {.kind = "routed",
            .label = std::move(label),
            .reads = {routed.rows, routed.shares},
            .writes = {routed.dst},
            .inside = std::to_string(routed.experts.size()) + " experts, of a row:\n" +
                      routed.experts.front().front()->described(),
            .flops = made.flops(),
            .run = [made](const Addresses& at) { made.run(at); }};
}

}  // namespace dlprim
