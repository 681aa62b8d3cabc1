#include "primitives/nest/widened_product.h"

#include "jit/isa.h"
#include "primitives/reorder/widen.h"

namespace dlprim {
namespace {

// Products for each byte that is widened from which on it takes less time than widening bytes in
// the kernel. By instructions that would be 16, and more for weights that leave the L2 cache as
// words: of 7x7 images, 49 products, a layer alone gains nothing and one in a network a tenth.
constexpr double kLeastProducts = 40;

bool lacks_byte_products() {
    const Isa isa = usable_isa();
    return isa != Isa::scalar && !multiplies_bytes(isa);
}

}  // namespace

WidenedProduct::WidenedProduct(const Contraction& product, std::int64_t a_bytes,
                               std::int64_t b_bytes)
    : pays_(lacks_byte_products() && is_int8(product.dtype) &&
            product.flops / 2 > kLeastProducts * static_cast<double>(a_bytes + b_bytes)),
      a_type_(product.dtype),
      a_bytes_(a_bytes),
      b_bytes_(b_bytes),
      columns_(product.ldb) {}

Contraction WidenedProduct::of(Contraction product) const {
    if (!pays_) return product;
    product.dtype = product.b_type = DType::s16;
    const auto twice = [](std::int64_t& bytes) { bytes *= 2; };
    for (ContractionLoop& loop : product.loops) {
        for (std::int64_t* const bytes : {&loop.a, &loop.b, &loop.ahead_a, &loop.ahead_b}) {
            twice(*bytes);
        }
    }
    for (Contraction::Selection& selection : product.selections) twice(selection.a);
    for (std::vector<Term>& terms : product.classes) {
        for (Term& term : terms) {
            for (std::int64_t& entry : term.entries_a) twice(entry);
            for (std::int64_t& entry : term.entries_b) twice(entry);
        }
    }
    twice(product.fetching.entry_a);
    twice(product.fetching.entry_b);
    product.bytes_a *= 2;
    product.bytes_b *= 2;
    return product;
}

std::int64_t WidenedProduct::scratch_bytes() const {
    return pays_ ? aligned(2 * a_bytes_) + aligned(2 * b_bytes_) : 0;
}

void WidenedProduct::widen(ContractionOperands& operands, char* scratch) const {
    if (!pays_) return;
    auto* const a = reinterpret_cast<std::int16_t*>(scratch);
    auto* const b = reinterpret_cast<std::int16_t*>(scratch + aligned(2 * a_bytes_));
    widen_bytes(a_type_, operands.a, a_bytes_, a);
    widen_packed(static_cast<const std::int8_t*>(operands.b), b_bytes_ / (4 * columns_), columns_,
                 b);
    operands.a = a;
    operands.b = b;
}

}  // namespace dlprim
