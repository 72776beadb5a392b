// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/parallel.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <exception>
#include <new>

#include "base/error.h"

namespace apus::cpu {

int threads() { return at::get_num_threads(); }

void share(int64_t count, int64_t grain, Callable<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  at::internal::lazy_init_num_threads();
  if (count <= grain || threads() == 1 || at::in_parallel_region()) return body(0, count);
  std::atomic<int64_t> next{0};
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr failure;
#pragma omp parallel
  {
    try {
      for (int64_t begin; (begin = next.fetch_add(grain, std::memory_order_relaxed)) < count;)
        body(begin, begin + grain < count ? begin + grain : count);
    } catch (...) {
      if (!failed.test_and_set()) failure = std::current_exception();
      next = count;
    }
  }
  if (failure) std::rethrow_exception(failure);
}

namespace {
struct Buffer {
  float* data = nullptr;
  int64_t size = 0;
  ~Buffer() { ::operator delete (data, std::align_val_t{64}); }
};
}  // namespace

float* scratch(int slot, int64_t floats) {
  constexpr int kSlots = 20;
  require(slot >= 0 && slot < kSlots, Fault::Bug, "scratch slot ", slot);
  thread_local Buffer buffers[kSlots];
  Buffer& b = buffers[slot];
  if (b.size < floats) {
    ::operator delete (b.data, std::align_val_t{64});
    b.data = nullptr, b.size = 0;
    b.data = static_cast<float*>(::operator new (sizeof(float) * floats, std::align_val_t{64}));
    b.size = floats;
  }
  return b.data;
}

}  // namespace apus::cpu
