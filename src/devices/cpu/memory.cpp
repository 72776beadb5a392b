// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/memory.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "base/error.h"
#include "devices/cpu/host.h"

namespace apus::cpu {

namespace {
constexpr size_t kHuge = size_t{2} << 20, kPage = 4096, kLarge = size_t{256} << 10;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// Address space beginning on a huge page; it becomes memory only where it is touched.
char* map_huge(size_t bytes) {
  const size_t reserved = bytes + kHuge;
  void* raw = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char *begin = static_cast<char*>(raw),
       *aligned = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(raw), kHuge));
  if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
  const size_t used = round_up(bytes, kPage);
  if (aligned + used < begin + reserved) munmap(aligned + used, static_cast<size_t>(begin + reserved - aligned - used));
  madvise(aligned, bytes, MADV_HUGEPAGE);  // a wish: without it everything works, only slower
  return aligned;
}

// Blocks of one address range.
class Heap {
 public:
  bool reserve(size_t bytes) {
    begin_ = map_huge(bytes);
    if (!begin_) return false;
    end_ = begin_ + bytes;
    insert(begin_, bytes);
    untouched_ = begin_;
    return true;
  }

  bool owns(const void* p) const { return p >= begin_ && p < end_; }

  void* take(size_t wanted) {  // nullptr when full
    const size_t bytes = round_up(wanted, kPage);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto best = by_size_.lower_bound({bytes, nullptr});
    if (best == by_size_.end()) return nullptr;
    const auto [size, data] = *best;
    erase(data, size);
    if (size > bytes) insert(data + bytes, size - bytes);
    taken_[data] = bytes;
    used_ += bytes;
    untouched_ = std::max(untouched_, data + bytes);
    return data;
  }

  void give(void* p) {
    const std::lock_guard<std::mutex> lock(mutex_);
    char* data = static_cast<char*>(p);
    const auto it = taken_.find(data);
    if (it == taken_.end()) return;
    size_t size = it->second;
    used_ -= size;
    taken_.erase(it);
    const auto after = free_.lower_bound(data);
    if (after != free_.end() && after->first == data + size) {
      const auto [next, next_size] = *after;
      erase(next, next_size);
      size += next_size;
    }
    const auto before = free_.lower_bound(data);
    if (before != free_.begin()) {
      const auto [previous, previous_size] = *std::prev(before);
      if (previous + previous_size == data) {
        erase(previous, previous_size);
        data = previous, size += previous_size;
      }
    }
    insert(data, size);
  }

  HeapUse use() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {static_cast<int64_t>(used_), static_cast<int64_t>(static_cast<size_t>(untouched_ - begin_) - used_)};
  }

  void release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    // Whole huge pages only: torn ones do not grow together again soon.
    for (const auto& [data, size] : free_) {
      const uintptr_t begin = round_up(reinterpret_cast<uintptr_t>(data), kHuge);
      const uintptr_t end =
          std::min(reinterpret_cast<uintptr_t>(data) + size, round_up(reinterpret_cast<uintptr_t>(untouched_), kHuge)) /
          kHuge * kHuge;
      if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
    }
  }

 private:
  void insert(char* data, size_t size) { free_[data] = size, by_size_.insert({size, data}); }
  void erase(char* data, size_t size) { free_.erase(data), by_size_.erase({size, data}); }

  mutable std::mutex mutex_;
  char *begin_ = nullptr, *end_ = nullptr, *untouched_ = nullptr;  // untouched_: nothing above was ever handed out
  size_t used_ = 0;
  std::map<char*, size_t> free_, taken_;
  std::set<std::pair<size_t, char*>> by_size_;  // the free ones; of equal size the lowest first
};

Heap& heap() {
  static Heap* const forever = new Heap;  // tensors may outlive static objects
  return *forever;
}

// The allocator that was there before: small blocks are still its own.
c10::Allocator& before() {
  static c10::Allocator* const allocator = c10::GetCPUAllocator();
  return *allocator;
}

void free_block(void* p) {
  if (heap().owns(p))
    heap().give(p);
  else
    before().raw_deleter()(p);
}

// No `override`: whether allocate is const differs between versions of libtorch, and copy_data is not in all of them.
class KeepingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const { return get(bytes); }
  c10::DataPtr allocate(size_t bytes) { return get(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return free_block; }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

 private:
  static c10::DataPtr get(size_t bytes) {
    void* data = bytes >= kLarge ? heap().take(bytes) : nullptr;
    return data ? c10::DataPtr{data, data, free_block, c10::Device(c10::kCPU)} : before().allocate(bytes);
  }
};
}  // namespace

bool keep_large_tensors() {
  static const bool installed = [] {
    // Twice the memory: room to find a hole even when the heap is nearly full and scattered.
    if (!before().raw_deleter() || !heap().reserve(round_up(2 * static_cast<size_t>(memory_total()), kHuge)))
      return false;
    c10::SetCPUAllocator(new KeepingAllocator, /*priority=*/100);
    return true;
  }();
  return installed;
}

HeapUse heap_use() { return heap().use(); }
void release_kept() { heap().release(); }

at::Tensor empty_huge(int64_t count, at::ScalarType dtype) {
  const size_t bytes = static_cast<size_t>(count) * c10::elementSize(dtype);
  if (bytes < kHuge) return at::empty({count}, dtype);
  void* data = map_huge(bytes);
  require(data, Fault::Device, "cannot map ", bytes, " bytes of memory for packed weights: ", std::strerror(errno));
  return at::from_blob(
      data, {count}, [bytes](void* p) { munmap(p, round_up(bytes, kPage)); }, at::TensorOptions().dtype(dtype));
}

}  // namespace apus::cpu
