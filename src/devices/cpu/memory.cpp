// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace apus::cpu {

namespace {
constexpr size_t kHuge = size_t{2} << 20;

// Address space, aligned to a huge page; touched only where it is used.
void* map_huge(size_t bytes) {
  const size_t reserved = bytes + kHuge;
  void* raw = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(raw != MAP_FAILED, Fault::Device, "cannot map ", bytes, " bytes of memory: ", std::strerror(errno));
  char* begin = static_cast<char*>(raw);
  char* aligned = begin + (kHuge - reinterpret_cast<uintptr_t>(begin) % kHuge) % kHuge;
  const size_t page = 4096, used = (bytes + page - 1) / page * page;
  if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
  if (aligned + used < begin + reserved) munmap(aligned + used, static_cast<size_t>(begin + reserved - aligned - used));
  madvise(aligned, bytes, MADV_HUGEPAGE);  // a wish: without it everything works, only slower
  return aligned;
}
}  // namespace

at::Tensor empty_huge(int64_t count, at::ScalarType dtype) {
  const size_t bytes = static_cast<size_t>(count) * c10::elementSize(dtype);
  if (bytes < kHuge) return at::empty({count}, dtype);
  void* data = map_huge(bytes);
  return at::from_blob(data, {count}, [bytes](void* p) { munmap(p, (bytes + 4095) / 4096 * 4096); }, at::TensorOptions().dtype(dtype));
}

}  // namespace apus::cpu
