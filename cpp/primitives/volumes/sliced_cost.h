// What a convolution of volumes is expected to take as one of images, for which the slices that a
// filter reads are copied side by side: that is done elsewhere, where slices are many channels.
#pragma once

#include "jit/dtype.h"
#include "primitives/nest/scheduled_pass.h"
#include "primitives/volumes/volume_shape.h"

namespace dlprim {

// In cycles; infinity where it cannot be done well.
double cycles_by_slices(const VolumeShape& shape, DType dtype, PassKind pass);

}  // namespace dlprim
