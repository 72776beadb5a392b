// SPDX-License-Identifier: Apache-2.0
#include "base/signals.h"

#include <time.h>

#include <atomic>
#include <cstdint>

#include "base/error.h"

namespace apus {

namespace {
// A signal handler reaches nothing but statics.
std::atomic<int> received{0};
std::atomic<int64_t> received_at{0};  // milliseconds of the steady clock
std::atomic<bool> in_use{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

constexpr int64_t kSameWish = 1000;  // milliseconds

int64_t milliseconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000} + now.tv_nsec / 1'000'000;
}

void remember(int signal) {
  const int64_t now = milliseconds_now();
  if (received.load() == 0) {
    received_at.store(now), received.store(signal);
  } else if (now - received_at.load() >= kSameWish) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
}
}  // namespace

StopFlag::StopFlag() {
  require(!in_use.exchange(true), Fault::Bug, "two StopFlags at once");
  received.store(0);
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
}

StopFlag::~StopFlag() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  in_use.store(false);
}

bool StopFlag::raised() const { return received.load() != 0; }
int StopFlag::signal() const { return received.load(); }
void StopFlag::throw_if_raised() const {
  if (raised()) throw Interrupted(signal());
}

}  // namespace apus
