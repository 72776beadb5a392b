// SPDX-License-Identifier: Apache-2.0
// Memory on huge pages, and large tensors from memory that is kept: a fresh page costs more to touch than the
// arithmetic that fills it, and glibc gives large blocks back to the system at every free.
#pragma once

#include <ATen/core/Tensor.h>

namespace apus::cpu {

// From now on, tensors of a quarter of a megabyte and more come from one address range whose freed parts are used again
// (best fit, neighbours joined). False when the system refuses the range; libtorch's own allocator stays then.
bool keep_large_tensors();

struct HeapUse {
  int64_t used = 0, kept = 0;  // bytes in tensors; bytes that are free but not given back
};
HeapUse heap_use();
void release_kept();  // gives the free parts back to the system

// An uninitialised one-dimensional tensor for weights that stay:
// its own mapping, beginning on a huge page when it is large.
at::Tensor empty_huge(int64_t count, at::ScalarType dtype);

}  // namespace apus::cpu
