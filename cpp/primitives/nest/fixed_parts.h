// Sums over more than one thread that are the same bits for any number of them. What is summed
// falls into parts, whose number the problem gives and never the threads; every part is summed into
// a copy of its own, and the copies are added in a fixed order when all parts are there.
#pragma once

#include <cstdint>

#include "jit/dtype.h"
#include "primitives/nest/loop_nest.h"
#include "primitives/tensor/parallel.h"
#include "primitives/tensor/partition.h"

namespace dlprim {

// Copies of the same sums, one for each part.
struct SumCopies {
    float* first = nullptr;
    std::int64_t count = 0;
    std::int64_t distance = 0;  // floats from one copy to the next

    float* copy(std::int64_t part) const { return first + part * distance; }
};

// Both add some elements of all copies into the first one, one after the other, or as a tree: then
// the error grows with its height only, and what the other copies held is lost.
void add_in_order(const SumCopies& copies, Range elements);
void add_as_tree(const SumCopies& copies, Range elements);

// The schedule of a sum in fixed parts begins with a capital level of the loop that is summed: "N8
// K C n" is for parts of 8 iterations, dealt out as evenly as they can be (chunk()), in the order
// of the levels behind it. Any other schedule has one part.
struct SumSchedule {
    std::int64_t parts = 1;
    Schedule within = {};  // of one part
};

// Throws std::invalid_argument for more than `most` parts.
SumSchedule sum_schedule(const Schedule& schedule, const Loop& loop, std::int64_t most);
Schedule with_parts(const Schedule& within, const Loop& loop, std::int64_t parts);

// As many parts as two, four or eight threads share evenly, at most `most`.
std::int64_t even_parts(std::int64_t extent, std::int64_t most);

// A sum of `elements` values in so many parts, as a result of type `to`: float32, which holds the
// copy of the first part itself, or bfloat16, rounded once.
class FixedParts {
public:
    FixedParts() = default;
    FixedParts(std::int64_t count, std::int64_t elements, DType to)
        : count_(count), elements_(elements), to_(to) {}

    std::int64_t count() const { return count_; }

    // Where the copies are, on cache lines.
    std::int64_t scratch_bytes() const {
        return copies() * aligned(elements_ * size_of(DType::f32));
    }

    // To the first sums those of the other parts, in their order.
    void add(void* result, char* scratch) const;

    // Calls body(part, sums, worker) for every part, then adds up. Several parts at once on as many
    // threads, of which those that there are no parts for share the work inside of parts; with 1
    // one part after the other on this thread, whose body may use all threads. No two calls have
    // one worker at a time, a number below threads and count(): where there are threads enough that
    // of the part, else of the seat.
    template <class Body>
    void run(void* result, char* scratch, int threads, const Body& body) const {
        const auto each = [&](Range parts, int seat) {
            for (std::int64_t part = parts.begin; part < parts.end; ++part) {
                body(part, sums(part, result, scratch), count_ <= threads ? part : seat);
            }
        };
        if (threads == 1) {
            each({0, count_}, 0);
        } else {
            parallel_ranges(count_, threads, each);
        }
        add(result, scratch);
    }

private:
    std::int64_t copies() const { return to_ == DType::f32 ? count_ - 1 : count_; }
    float* sums(std::int64_t part, void* result, char* scratch) const;

    std::int64_t count_ = 1;
    std::int64_t elements_ = 0;
    DType to_ = DType::f32;
};

}  // namespace dlprim
