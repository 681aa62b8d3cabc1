#include "graph/piece_step.h"

#include <cstddef>
#include <stdexcept>
#include <utility>

#include "primitives/tensor/parallel.h"

namespace dlprim {
namespace {

[[noreturn]] void refuse(const std::string& label, const std::string& sentence) {
    throw std::invalid_argument("step " + label + " (pieces): " + sentence);
}

std::vector<int> joined(std::vector<int> one, const std::vector<int>& other) {
    one.insert(one.end(), other.begin(), other.end());
    return one;
}

class PieceRun {
public:
    PieceRun(const Network& network, const RowPieces& pieces, const std::string& label)
        : piece_(pieces.piece), rest_(pieces.rest), values_(joined(pieces.inputs, pieces.results)) {
        const std::vector<int> own = arrays_of(piece_, pieces, label);
        const std::vector<int> last =
            rest_ == nullptr ? std::vector<int>() : arrays_of(*rest_, pieces, label);
        for (std::size_t i = 0; i < values_.size(); ++i) {
            const NetworkTensor& whole = network.tensor(values_[i]);
            const NetworkTensor& part = piece_.tensor(own[i]);
            const std::int64_t left = rest_ == nullptr ? 0 : rest_->tensor(last[i]).bytes();
            steps_.push_back(part.bytes());
            bytes_ += static_cast<double>(whole.bytes());
            if (i == 0 && part.bytes() > 0) count_ = (whole.bytes() - left) / part.bytes();
            const bool fits = count_ > 0 && whole.is_dense() && whole.dtype == part.dtype &&
                              whole.bytes() == count_ * part.bytes() + left;
            if (!fits) {
                refuse(label, "value " + std::to_string(values_[i]) + " is " + whole.described() +
                                  ", expected " + std::to_string(count_) + " times " +
                                  part.described() + (left > 0 ? " and a rest" : "") +
                                  " in C order");
            }
        }
        flops_ = static_cast<double>(count_) * piece_.flops();
        if (rest_ != nullptr) flops_ += rest_->flops();
    }

    double flops() const { return flops_; }

    std::string described() const {
        return std::to_string(count_) + " pieces" + (rest_ == nullptr ? "" : " and a rest") +
               ", each with " + std::to_string(piece_.planned_bytes()) + " bytes of its own:\n" +
               piece_.described();
    }

    void run(const Addresses& at) const {
        const WorkOf work(flops_, bytes_);
        const std::int64_t pieces = count_ + (rest_ == nullptr ? 0 : 1);
        parallel_for(pieces, [&](std::int64_t number) { run_piece(at, number); });
    }

private:
    static std::vector<int> arrays_of(const Network& network, const RowPieces& pieces,
                                      const std::string& label) {
        const bool fits = network.is_finished() &&
                          network.inputs().size() == pieces.inputs.size() &&
                          network.results().size() == pieces.results.size();
        if (!fits) refuse(label, "a piece has other inputs and results, or is not finished");
        if (network.runs_alone()) refuse(label, "a piece has steps that run alone");
        if (network.has_states()) refuse(label, "a piece has states, expected none");
        return joined(network.inputs(), network.results());
    }

    void run_piece(const Addresses& at, std::int64_t number) const {
        const WorkspacePool::Lease own(WorkspacePool::lasting(),
                                       static_cast<std::int64_t>(values_.size() * sizeof(char*)));
        auto* const arrays = reinterpret_cast<char**>(own.data());
        for (std::size_t i = 0; i < values_.size(); ++i) {
            arrays[i] = at[values_[i]].data + number * steps_[i];
        }
        (number < count_ ? piece_ : *rest_).run(arrays);
    }

    const Network& piece_;
    const Network* rest_;
    std::vector<int> values_;
    std::vector<std::int64_t> steps_ = {};  // bytes from piece to piece
    std::int64_t count_ = 0;                // of whole pieces
    double flops_ = 0, bytes_ = 0;          // of all of them; bytes that others see
};

}  // namespace

NetworkStep piece_step(const Network& network, const RowPieces& pieces, std::string label) {
    const PieceRun made(network, pieces, label);
    return {.kind = "pieces",
            .label = std::move(label),
            .reads = pieces.inputs,
            .writes = pieces.results,
            .inside = made.described(),
            .flops = made.flops(),
            .run = [made](const Addresses& at) { made.run(at); }};
}

}  // namespace dlprim
