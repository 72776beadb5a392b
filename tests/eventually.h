// SPDX-License-Identifier: Apache-2.0
// What another thread is about to do: waited for, with a limit that only a failure reaches.
#pragma once

#include <chrono>
#include <thread>

namespace apus::test {

template <class Done>
bool eventually(Done done) {
  for (int i = 0; i < 2000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace apus::test
