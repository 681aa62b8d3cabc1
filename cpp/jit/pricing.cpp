#include "jit/pricing.h"

#include <utility>

namespace dlprim {

thread_local Pricing* Pricing::of_thread = nullptr;

Pricing::Pricing(int threads) : threads_(threads), before_(std::exchange(of_thread, this)) {
    alive.fetch_add(1);
}

Pricing::~Pricing() {
    alive.fetch_sub(1);
    of_thread = before_;
}

}  // namespace dlprim
