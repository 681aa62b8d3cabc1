// The gradient of a definition by one of its parameters, as a definition: a layer that was written
// as a formula is trained with what that formula says, and whatever compiles definitions compiles
// this one. It is written down as text first, which is what its `text` has.
//   def fcrelu_d_w(float(B,I) x, float(O,I) w, float(O) b, float(B,O) d_y) -> (d_w) {
//       y_1(n,o) +=! x(n,i) * w(o,i)
//       d_y_1(n,o) = (y_1(n,o) + b(o) > 0) ? d_y(n,o) : 0
//       d_w(o,i) +=! d_y_1(n,o) * x(n,i)
//   }
#pragma once

#include <string_view>

#include "lang/definition.h"

namespace dlprim {

// Its parameters are those of the definition, the results that it reads or adds to before it writes
// them, and for every result y that is no whole number its gradient d_y. `parameter` is one of
// these, or of those results. Throws std::invalid_argument where it is not, or is no real number,
// and where a function has no derivative.
Definition gradient_of(const Definition& definition, std::string_view parameter);

}  // namespace dlprim
