#include "streams/stream_kernel.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "jit/element_reference.h"
#include "jit/pricing.h"
#include "jit/profile.h"
#include "streams/emit_streams.h"

namespace dlprim {
namespace {

constexpr double kCyclesPerCall = 40;
constexpr double kBytesPerCycle = 6;     // from memory
constexpr double kProductsPerCycle = 8;  // with all that is around them
constexpr std::int64_t kSplitColumns = 32;
constexpr CacheBounds kBounds{.entries = 1024, .bytes = std::int64_t{16} << 20};

struct StreamKey {
    StreamSpec spec;
    Isa isa;

    friend bool operator==(const StreamKey&, const StreamKey&) = default;
};

struct StreamKeyHash {
    std::size_t operator()(const StreamKey& key) const noexcept {
        const auto number = [](auto it) { return static_cast<std::size_t>(it); };
        const StreamSpec& it = key.spec;
        const std::size_t types = number(it.matrix) * 16 + number(it.vectors);
        const std::size_t sizes = (number(it.distance) * 2048 + number(it.columns)) * 16;
        return ((sizes + number(it.count)) * 256 + types) * 16 + number(it.way) * 8 +
               number(key.isa);
    }
};

using StreamCache = Cache<StreamKey, StreamKernel, StreamKeyHash>;

StreamCache& cache() { return process_cache<StreamCache, kBounds>(); }

// The level of the code for a level.
Isa stream_isa(Isa isa) {
    if (isa >= Isa::avx512_bf16) return Isa::avx512_bf16;
    return isa >= Isa::avx512 ? Isa::avx512 : std::min(isa, Isa::avx2);
}

bool is_one(const StreamSpec& spec, Isa isa) {
    const bool has_type =
        spec.matrix == DType::f32 || spec.matrix == DType::bf16 || spec.matrix == DType::s8;
    const bool are_pairs = spec.way == StreamSpec::Way::along && spec.matrix == DType::bf16 &&
                           spec.vectors == DType::bf16 &&
                           (streams_pairs(isa) || isa == Isa::scalar);
    return has_type && (spec.vectors == DType::f32 || are_pairs) && spec.columns >= 1 &&
           spec.columns <= kMostStreamColumns && spec.count >= 1 &&
           spec.count <= most_streamed(isa) && spec.distance >= 0 && spec.distance < (1 << 24);
}

}  // namespace

int most_streamed(Isa isa) { return isa >= Isa::avx512 || isa == Isa::scalar ? 8 : 4; }

bool streams_pairs(Isa isa) { return isa >= Isa::avx512_bf16; }

bool splits_halves(const StreamSpec& spec, Isa isa) {
    return isa >= Isa::avx512 && spec.matrix == DType::bf16 && spec.vectors == DType::f32;
}

void take_vector(const StreamSpec& spec, Isa isa, DType type, const void* from, void* to) {
    const std::int64_t columns = spec.columns, pitch = stream_pitch(columns);
    const std::int64_t size = size_of(spec.vectors);
    char* const first = static_cast<char*>(to);
    std::memset(first, 0, static_cast<std::size_t>(pitch * size));
    if (type == spec.vectors && !splits_halves(spec, isa)) {
        std::memcpy(first, from, static_cast<std::size_t>(columns * size));
        return;
    }
    auto* const floats = static_cast<float*>(to);
    if (!splits_halves(spec, isa)) {
        for (std::int64_t c = 0; c < columns; ++c) floats[c] = element_at(type, from, c);
        return;
    }
    for (std::int64_t group = 0; group < columns; group += kSplitColumns) {
        const std::int64_t count = std::min(columns - group, kSplitColumns);
        for (std::int64_t c = 0; c < count; ++c) {
            floats[group + c % 2 * (kSplitColumns / 2) + c / 2] = element_at(type, from, group + c);
        }
    }
}

void reference_stream(const StreamSpec& spec, const StreamArgs& args) {
    const std::int64_t pitch = stream_pitch(spec.columns);
    const bool is_along = spec.way == StreamSpec::Way::along;
    for (std::int64_t v = 0; v < spec.count; ++v) {
        float* const numbers = args.numbers + v * spec.distance;
        if (!is_along) {
            std::fill_n(static_cast<float*>(args.vectors) + v * pitch, spec.columns, 0.0F);
        }
        for (std::int64_t row = 0; row < args.rows; ++row) {
            const char* const from = static_cast<const char*>(args.matrix) + row * args.step;
            double sum = 0;
            for (std::int64_t c = 0; c < spec.columns; ++c) {
                const float element = element_at(spec.matrix, from, c);
                if (is_along) {
                    sum += static_cast<double>(element) *
                           element_at(spec.vectors, args.vectors, v * pitch + c);
                } else {
                    static_cast<float*>(args.vectors)[v * pitch + c] += element * numbers[row];
                }
            }
            if (is_along) numbers[row] = static_cast<float>(sum);
        }
    }
}

StreamKernel::StreamKernel(const StreamSpec& spec, Isa isa) : spec_(spec), isa_(isa) {
    if (!is_one(spec, isa)) throw std::invalid_argument("a kernel of rows has no such spec");
    if (isa_ == Isa::scalar) return;
    code_ = Code(emit_stream(spec_, isa_), pages_for_profile());
    entry_ = code_.entry<Function>();
}

void StreamKernel::operator()(const StreamArgs& args) const {
    if (Pricing* const pricing = Pricing::current()) return pricing->add(cycles(args.rows));
    if (entry_ != nullptr) {
        entry_(&args);
    } else {
        reference_stream(spec_, args);
    }
}

double StreamKernel::cycles(std::int64_t rows) const {
    const auto elements = static_cast<double>(rows * spec_.columns);
    const double products = elements * spec_.count / kProductsPerCycle;
    const double bytes = elements * static_cast<double>(size_of(spec_.matrix)) / kBytesPerCycle;
    return kCyclesPerCall + std::max(products, bytes);
}

std::string StreamKernel::name() const {
    const bool is_along = spec_.way == StreamSpec::Way::along;
    return "stream_" + std::string(name_of(isa_)) + (is_along ? "_along_" : "_across_") +
           std::string(name_of(spec_.matrix)) + (spec_.vectors == DType::bf16 ? "_pairs_" : "_") +
           std::to_string(spec_.count) + "x" + std::to_string(spec_.columns) + "_" +
           std::to_string(spec_.distance);
}

std::shared_ptr<const StreamKernel> stream_kernel(const StreamSpec& spec, Isa isa) {
    const StreamKey key{spec, stream_isa(isa)};
    return cache().get_or_create(key, [&] {
        return generated_kernel(
            [&] { return std::make_shared<const StreamKernel>(key.spec, key.isa); });
    });
}

CacheInfo stream_cache_info() { return cache().info(); }

void stream_cache_clear() { cache().clear(); }

}  // namespace dlprim
