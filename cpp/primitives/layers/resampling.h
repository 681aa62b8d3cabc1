// Windows of pixels, each made one: where a result looks is data, one table for height and one for
// width. Weighted sums are pooling to a given size, interpolation, average pooling, and the
// gradients of all of them; the largest of a window is maximum pooling. Backward, each input
// gathers from the windows it is in, so that every element is written once and nothing is added up
// in memory. Sums over large windows take two steps, along rows and along columns of pixels: a list
// of all pixels of every window would be larger than the image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "primitives/layers/channel_panels.h"
#include "primitives/tensor/channel_blocks.h"
#include "primitives/tensor/layout.h"
#include "rows/row_args.h"

namespace dlprim {

// One axis: neighbours that each result reads, none where it is 0, and a number for each of them.
struct AxisWindows {
    std::vector<std::int64_t> begins;  // of each result: the first that it reads
    std::vector<std::int64_t> places;  // where its weights begin, and behind them where all end
    std::vector<float> weights;

    std::int64_t results() const { return static_cast<std::int64_t>(begins.size()); }
};

struct Windows {
    Activations src;
    Format layout = Format::blocked;
    AxisWindows rows;
    AxisWindows columns;
};

enum class Fold : std::uint8_t {
    sum,      // of what is read times the weights of its row and column
    chosen,   // the sum of those whose tap, in memory, is the sum of these two weights
    largest,  // the first of equal ones, or NaN, or of bytes; its tap is that sum, below 256
};

struct FoldOperands {
    const void* src = nullptr;
    void* dst = nullptr;
    const std::uint8_t* taps = nullptr;  // chosen: like src
    std::uint8_t* taps_out = nullptr;    // largest: like dst, or null
};

// What there is to know before the first call: which pixels each row of results reads.
class Resampling {
public:
    // Throws std::invalid_argument where the windows are no tables, or reach beyond src.
    Resampling(Windows windows, Fold fold);

    // Padding channels are neither read nor written.
    void operator()(const FoldOperands& operands) const;

    const Windows& windows() const { return it_; }

private:
    // What the results of a row read, from the first row of their windows on.
    struct RowList {
        std::vector<RowArgs::Listed> entries;
        std::vector<std::int64_t> counts;  // of each result
        std::vector<float> first;          // of each result
    };

    enum class Steps : std::uint8_t { one, columns_first, rows_first };

    struct Step {
        std::size_t program;
        char* from;  // its first pixel
        char* to;
        std::int64_t channels;
    };

    void make_lists();
    void make_lists_of_steps();
    RowList list_of(std::int64_t row) const;
    void run_row(const FoldOperands& operands, std::int64_t panel, std::int64_t row) const;
    void run_steps(const FoldOperands& operands, std::int64_t panel, std::int64_t row) const;
    void fold_columns(const Step& step) const;
    void fold_rows(const Step& step, std::int64_t row) const;
    std::int64_t first_read(std::int64_t panel, std::int64_t row) const;  // an element
    std::int64_t first_written(std::int64_t panel, std::int64_t row) const;

    Windows it_;
    Fold fold_;
    ChannelPanels panels_;
    Steps steps_ = Steps::one;
    // One for all rows whose windows are alike; of two steps that of columns, then that of rows.
    std::vector<RowList> lists_;
    std::vector<std::size_t> list_of_row_;
};

}  // namespace dlprim
