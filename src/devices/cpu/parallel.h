// SPDX-License-Identifier: Apache-2.0
// Work shared out to libtorch's threads.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace apus::cpu {

// A reference to any callable, without allocation; lives no longer than the call it is an argument of.
template <class Signature>
class Callable;
template <class... A>
class Callable<void(A...)> {
 public:
  template <class F>
  Callable(const F& f)  // NOLINT: implicit
      : object_(std::addressof(f)), call_([](const void* object, A... a) { (*static_cast<const F*>(object))(a...); }) {}
  void operator()(A... a) const { call_(object_, a...); }

 private:
  const void* object_;
  void (*call_)(const void*, A...);
};

int threads();

// Calls body(begin, end) for pieces of [0, count) of `grain` each, on whichever thread is free, in order.
// An exception of the body reaches the caller.
void share(int64_t count, int64_t grain, Callable<void(int64_t, int64_t)> body);

// 64-byte aligned memory of the calling thread, kept for the next call with this slot, which may overwrite it.
// It grows and never shrinks.
float* scratch(int slot, int64_t floats);

}  // namespace apus::cpu
