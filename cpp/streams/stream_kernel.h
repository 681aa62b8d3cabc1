// Generated code that reads the rows of a matrix once, as they are stored, for a few vectors: what
// attention does with keys and values when there are a few queries. A product of matrices would
// want its right side packed, which takes longer than to read it; here a row meets all vectors
// while it is in registers, and rows ahead are on their way from memory. Sums of several rows are
// added up across lanes together, which a sum for each row would spend most of its time on.
//
// Each row has a number for every vector. Along: the sums of products of a row and the vectors are
// made. Across: rows times their numbers are added up, which makes the vectors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "jit/cache.h"
#include "jit/code.h"
#include "jit/dtype.h"
#include "jit/isa.h"

namespace dlprim {

inline constexpr std::int64_t kMostStreamColumns = 1024;

// Elements from one vector to the next; those behind the columns are written without a meaning.
constexpr std::int64_t stream_pitch(std::int64_t columns) { return (columns + 31) / 32 * 32; }

// Vectors of one kernel, at most, as sums have registers.
int most_streamed(Isa isa);

// Whether vectors of bfloat16 can meet rows of bfloat16: they are multiplied in pairs then.
bool streams_pairs(Isa isa);

struct StreamSpec {
    enum class Way : std::uint8_t { along, across };

    Way way = Way::along;
    DType matrix = DType::f32;   // or bf16, s8
    DType vectors = DType::f32;  // or bf16, of pairs
    std::int64_t columns = 0;
    int count = 1;              // of vectors
    std::int64_t distance = 0;  // floats from the numbers for a vector to those for the next

    friend bool operator==(const StreamSpec&, const StreamSpec&) = default;
};

// Whether rows of bfloat16 become floats by taking neighbours apart. Vectors that are read have of
// 32 columns the even ones in front of the odd ones then.
bool splits_halves(const StreamSpec& spec, Isa isa);

// A vector of float32 or bfloat16 elements as kernels of a spec read it, with zeros behind it.
void take_vector(const StreamSpec& spec, Isa isa, DType type, const void* from, void* to);

// What generated code reads.
struct StreamArgs {
    const void* matrix = nullptr;
    std::int64_t step = 0;  // bytes from row to row
    std::int64_t rows = 0;
    float* numbers = nullptr;
    void* vectors = nullptr;
};

class StreamKernel {
public:
    // Generates the kernel. Prefer stream_kernel(), which caches.
    StreamKernel(const StreamSpec& spec, Isa isa);

    void operator()(const StreamArgs& args) const;

    // Of a call with so many rows, about: what Pricing takes for it.
    double cycles(std::int64_t rows) const;

    // Unique per spec and ISA.
    std::string name() const;
    // Empty for scalar.
    std::span<const std::uint8_t> code() const { return code_.bytes(); }
    // Of code.
    std::int64_t bytes() const { return std::ssize(code()); }
    std::int64_t mapped_before() const { return code_.mapped_before(); }  // as Code has it

private:
    using Function = void(const StreamArgs*);

    StreamSpec spec_;
    Isa isa_;
    Code code_;
    Function* entry_ = nullptr;
};

// The cached kernel for `spec` on `isa`, which is at most usable_isa(). Throws
// std::invalid_argument where the spec is none.
std::shared_ptr<const StreamKernel> stream_kernel(const StreamSpec& spec, Isa isa);

CacheInfo stream_cache_info();
void stream_cache_clear();

// Plain loops: what runs where there are no vectors, and the oracle of tests.
void reference_stream(const StreamSpec& spec, const StreamArgs& args);

}  // namespace dlprim
