#include "jit/cache.h"

#include <pthread.h>

namespace dlprim {

void watch_forks(void (*before)(), void (*in_parent)(), void (*in_child)()) {
    pthread_atfork(before, in_parent, in_child);
}

}  // namespace dlprim
