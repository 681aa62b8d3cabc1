// What a definition runs: steps one after the other, each a product of matrices, statements of
// the row engine or a copy from places that are read, and where their arrays are. Steps that share
// loops run for a piece of their arrays at a time: what lies between them is then as small as a
// piece, is the thread's own, and does not leave its caches. What a product packs of an operand
// that the last loop does not move is packed in front of it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dlprim {

class Explanation;
class FusedRows;
class Gather;
class ProductRun;
class RowStatement;
struct Explained;

// Where an array is: a parameter, a result, or scratch of the call or of a thread, of which the
// number is the first byte.
struct ArrayPlace {
    enum class Of : std::uint8_t { parameter, result, scratch, own };

    Of of = Of::scratch;
    std::int64_t number = 0;
    std::vector<std::int64_t> moves = {};  // bytes, from one value of each loop to the next

    bool operator==(const ArrayPlace&) const = default;
};

struct Step {
    std::variant<std::shared_ptr<const ProductRun>, std::shared_ptr<const RowStatement>,
                 std::shared_ptr<const FusedRows>, std::shared_ptr<const Gather>>
        what;
    std::vector<ArrayPlace> operands = {};  // of fused rows, all that is read and written
    ArrayPlace result = {};
    std::int64_t zeroed_bytes = 0;  // of the result, before it is written
    int statement = 0;
    int more = 0;                                 // statements behind that one which are part of it
    std::shared_ptr<const Explanation> why = {};  // of what could run otherwise
};

// Of a call.
struct StepArrays {
    std::span<const void* const> parameters;
    std::span<void* const> results;
    char* scratch;
};

class StepGroup {
public:
    // Pieces of `step` values from the first one to the end, which is a piece's.
    struct Loop {
        std::string index = {};
        std::int64_t first = 0;
        std::int64_t end = 1;
        std::int64_t step = 1;

        std::int64_t count() const { return (end - first) / step; }
    };

    explicit StepGroup(std::vector<Loop> loops = {}) : loops_(std::move(loops)) {}

    void add(Step step);
    // How often a step that packs this operand could use what it packs.
    double uses_of_packed(const ArrayPlace& place) const;
    // Scratch of a thread.
    ArrayPlace own(std::int64_t bytes);

    bool has_loops() const { return !loops_.empty(); }
    // Without loops threads share each step, else the pieces. The same bits for any number of them.
    void run(const StepArrays& arrays) const;
    std::string described(const Explained& asked) const;

private:
    // An operand of a product that is packed in front of the last loop.
    struct Packed {
        std::size_t step = 0;
        int operand = 0;
        std::int64_t place = 0;  // in the thread's scratch
    };
    struct Piece {
        std::vector<std::int64_t> values;  // of the loops
        char* own = nullptr;
    };

    std::int64_t pieces() const;
    Piece piece(std::int64_t number, char* own) const;
    void pack(const StepArrays& arrays, const Piece& piece) const;
    void run_steps(const StepArrays& arrays, const Piece& piece) const;

    std::vector<Loop> loops_;
    std::vector<std::shared_ptr<const Step>> steps_ = {};
    std::vector<Packed> packed_ = {};
    std::int64_t own_bytes_ = 0;
};

}  // namespace dlprim
