#include "primitives/mapping/product_ways.h"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace dlprim {
namespace {

// Networks of many indices: what is tried of each exchange and packing, so that none is left out.
constexpr int kMostTried = 32;

using Letters = std::vector<char>;

class WaysOfOne {
public:
    WaysOfOne(const StridedProduct& product, bool exchanges, const Machine& machine)
        : walk_(product, exchanges, machine), exchanges_(exchanges) {}

    void add_to(std::vector<ProductWay>& ways) {
        for (int bits = 0; bits < 8; ++bits) {
            const ProductWay way{.exchanges = exchanges_,
                                 .packs_a = (bits & 1) != 0,
                                 .packs_b = (bits & 2) != 0,
                                 .packs_c = (bits & 4) != 0};
            const StridedProduct& it = walk_.product();
            // Rows add to a result in place, but for bytes there are none.
            if (way.packs_c && it.accumulates && !is_int8(it.dtype)) continue;
            find_loops(way);
            tried_ = 0;
            for (const char n : n_) {
                for (const char k : k_) {
                    for (const char m : m_) try_loops(way, {m, n, k}, ways);
                }
            }
        }
    }

private:
    struct Chosen {
        char m;
        char n;
        char k;
    };

    // Of each class the indices that the kernel may go along. Where both operands of a class are
    // packed all of it is one index, whichever comes last.
    void find_loops(const ProductWay& way) {
        const StridedProduct& it = walk_.product();
        const std::int64_t word = walk_.word();
        find(it.rows, way.packs_a && way.packs_c, m_, [](const ProductIndex&) { return true; });
        find(it.columns, way.packs_b && way.packs_c, n_, [&](const ProductIndex& index) {
            return (way.packs_c || index.c == 1) && (way.packs_b || index.b == word);
        });
        find(it.sums, way.packs_a && way.packs_b && word == 1, k_,
             [&](const ProductIndex& index) { return way.packs_a || index.a == 1 || word == 1; });
    }

    template <typename Fits>
    static void find(const std::vector<ProductIndex>& indices, bool is_one, Letters& letters,
                     const Fits& fits) {
        letters.clear();
        if (indices.empty()) letters.push_back(0);
        for (auto index = indices.rbegin(); index != indices.rend(); ++index) {
            if (is_one && !letters.empty()) return;
            if (is_one || fits(*index)) letters.push_back(index->letter);
        }
    }

    void try_loops(ProductWay way, const Chosen& chosen, std::vector<ProductWay>& ways) {
        way.m.letter = chosen.m;
        way.n.letter = chosen.n;
        way.k.letter = chosen.k;
        if (tried_ == kMostTried) return;
        ++tried_;
        if (!walk_.follow(way)) return;
        way.ends = walk_.ends();
        if (walk_.product().needs_kernel() && !way.ends) return;
        way.m.members = walk_.m().members;
        way.n.members = walk_.n().members;
        way.k.members = walk_.k().members;
        way.cycles = walk_.cycles();
        ways.push_back(way);
    }

    ProductWalk walk_;
    bool exchanges_;
    int tried_ = 0;
    Letters m_ = {};
    Letters n_ = {};
    Letters k_ = {};
};

bool is_said_alike(const ProductWay& one, const ProductWay& other) {
    const auto said = [](const ProductWay& it) {
        return std::tuple(it.exchanges, it.packs_a, it.packs_b, it.packs_c, it.m.members,
                          it.n.members, it.k.members);
    };
    return said(one) == said(other);
}

}  // namespace

std::vector<ProductWay> product_ways(const StridedProduct& product, const Machine& machine) {
    std::vector<ProductWay> ways;
    // What is rounded once is summed elsewhere, without what stood in C.
    if (product.accumulates && product.c_type == DType::bf16) return ways;
    if (product.c_type == DType::s32 && product.scale != 1) return ways;
    if (product.sums.empty()) return ways;
    for (const bool exchanges : {false, true}) {
        WaysOfOne(product, exchanges, machine).add_to(ways);
    }
    std::stable_sort(ways.begin(), ways.end(), [](const ProductWay& left, const ProductWay& right) {
        return left.cycles < right.cycles;
    });
    // The same indices may become one in several orders.
    for (std::size_t i = 0; i < ways.size(); ++i) {
        const auto next = ways.begin() + static_cast<std::ptrdiff_t>(i) + 1;
        ways.erase(std::remove_if(next, ways.end(),
                                  [&](const ProductWay& it) { return is_said_alike(it, ways[i]); }),
                   ways.end());
    }
    return ways;
}

}  // namespace dlprim
