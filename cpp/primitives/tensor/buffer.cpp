#include "primitives/tensor/buffer.h"

#include <sys/mman.h>

namespace dlprim {

Buffer::Buffer(std::int64_t elements)
    : bytes_(static_cast<std::size_t>(elements) * sizeof(float)),
      data_(static_cast<float*>(operator new[](bytes_, alignment()))) {
    // Advice: without huge pages all is as right, and slower.
    if (bytes_ >= kLarge) madvise(data_, bytes_, MADV_HUGEPAGE);
}

}  // namespace dlprim
