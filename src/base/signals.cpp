// SPDX-License-Identifier: Apache-2.0
#include "base/signals.h"

#include <atomic>

#include "base/error.h"

namespace apus {

namespace {
// A signal handler reaches nothing but statics.
std::atomic<int> received{0};
std::atomic<bool> in_use{false};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) { received.store(signal); }
}  // namespace

StopFlag::StopFlag() {
  require(!in_use.exchange(true), Fault::Bug, "two StopFlags at once");
  received.store(0);
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &interrupt_);
  ::sigaction(SIGTERM, &action, &terminate_);
}

StopFlag::~StopFlag() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
  in_use.store(false);
}

bool StopFlag::raised() const { return received.load() != 0; }
int StopFlag::signal() const { return received.load(); }
void StopFlag::throw_if_raised() const {
  if (raised()) throw Interrupted(signal());
}

}  // namespace apus
