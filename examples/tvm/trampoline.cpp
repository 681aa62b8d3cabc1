// What TVM's code calls: a kernel with all that stays the same from call to call, behind a number
// that TVM holds as a constant, and a plain C function of that number and three pointers.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include <dlprim/brgemm/brgemm.h>

namespace {

struct Product {
    std::shared_ptr<const dlprim::Brgemm> kernel;
    std::vector<std::int64_t> offsets_a, offsets_b;  // bytes
};

}  // namespace

extern "C" {

// C[m,n] = sum over batch of A_i[m,k] B_i[k,n]; rows of A are lda floats apart. 0 on failure.
std::int64_t dlprim_tvm_product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lda,
                                std::int64_t batch, const std::int64_t* offsets_a,
                                const std::int64_t* offsets_b) {
    try {
        const auto kernel = dlprim::brgemm(
            {.m = m, .n = n, .k = k, .lda = lda, .addressing = dlprim::Addressing::offset});
        auto* product =
            new Product{kernel, {offsets_a, offsets_a + batch}, {offsets_b, offsets_b + batch}};
        return reinterpret_cast<std::int64_t>(product);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "dlprim_tvm_product: %s\n", error.what());
        return 0;
    }
}

// From then on no code that holds the number may run.
void dlprim_tvm_release(std::int64_t product) { delete reinterpret_cast<Product*>(product); }

std::int32_t dlprim_tvm_brgemm(std::int64_t number, const float* a, const float* b, float* c) {
    const auto& product = *reinterpret_cast<const Product*>(number);
    (*product.kernel)({
        .a = a,
        .b = b,
        .c = c,
        .batch = static_cast<std::int64_t>(product.offsets_a.size()),
        .offsets_a = product.offsets_a.data(),
        .offsets_b = product.offsets_b.data(),
    });
    return 0;
}
}
