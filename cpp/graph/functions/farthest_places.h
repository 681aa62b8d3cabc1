// Places of the greatest and the least elements.
#pragma once

#include "graph/functions/function_step.h"

namespace dlprim {

// The place of the greatest ("argmax") or least element along `axis`, the first of equal ones, or
// with `last` the last; what is no number comes before all. x of float32 to int64, places int64.
RunOfCall farthest_places(const Network& network, const ArrayCall& call);

}  // namespace dlprim
