// SPDX-License-Identifier: Apache-2.0
#include "dist/launch/first_machine.h"

#include <netdb.h>

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace apus {

namespace {
constexpr double kPatience = 5;  // seconds
}

void require_known_machine(const std::string& name, const std::string& variable) {
  const Stopwatch watch;
  int code = 0;
  do {
    addrinfo* found = nullptr;
    code = ::getaddrinfo(name.c_str(), nullptr, nullptr, &found);
    if (found) ::freeaddrinfo(found);
    if (code == EAI_AGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  } while (code == EAI_AGAIN && watch.seconds() < kPatience);
  require(code == 0, Fault::Comm, "the first machine's name '", name, "' (", variable,
          ") does not resolve on this machine: ", ::gai_strerror(code),
          ". Set MASTER_ADDR to its address, or to a name ", "that all machines know, and start all ranks again");
}

}  // namespace apus
