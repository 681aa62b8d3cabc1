// Elementary functions of elements, as operations of row programs: a range reduction and a
// polynomial each, so that generated code and the interpreter share them. docs/formulas.md has the
// largest error of each, which tests hold. Limits, signs of zeros and NaN are those of C.
#pragma once

#include "rows/row_builder.h"

namespace dlprim {

RowValue floor(RowValue x);
RowValue ceil(RowValue x);
RowValue trunc(RowValue x);
RowValue sign(RowValue x);  // NaN stays, zeros have none
RowValue copysign(RowValue size, RowValue x);
RowValue fmod(RowValue a, RowValue b);
RowValue remainder(RowValue a, RowValue b);  // with the sign of b
RowValue fdim(RowValue a, RowValue b);

RowValue exp2(RowValue x);
RowValue exp10(RowValue x);
RowValue expm1(RowValue x);
RowValue sinh(RowValue x);
RowValue cosh(RowValue x);
RowValue mish(RowValue x);

RowValue log1p(RowValue x);
RowValue log2(RowValue x);
RowValue log10(RowValue x);
RowValue asinh(RowValue x);
RowValue acosh(RowValue x);
RowValue atanh(RowValue x);
RowValue softplus(RowValue x);

RowValue sin(RowValue x);
RowValue cos(RowValue x);
RowValue tan(RowValue x);
RowValue sinpi(RowValue x);
RowValue cospi(RowValue x);
RowValue asin(RowValue x);
RowValue acos(RowValue x);
RowValue atan(RowValue x);
RowValue atan2(RowValue y, RowValue x);

RowValue pow(RowValue x, RowValue exponent);
RowValue cbrt(RowValue x);
RowValue hypot(RowValue a, RowValue b);

RowValue erf(RowValue x);
RowValue erfc(RowValue x);
RowValue normcdf(RowValue x);

}  // namespace dlprim
