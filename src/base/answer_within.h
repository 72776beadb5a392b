// SPDX-License-Identifier: Apache-2.0
// What some work gives, unless it takes longer than one wants to wait.
#pragma once

#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace apus {

// For calls that may never return. One that takes too long is left to itself, on a thread that nobody waits for: it
// must own all that it uses.
template <class F>
std::optional<std::string> answer_within(double seconds, F work) {
  const auto answer = std::make_shared<std::promise<std::string>>();
  std::future<std::string> coming = answer->get_future();
  std::thread([answer, work = std::move(work)] {
    try {
      answer->set_value(work());
    } catch (...) {
      answer->set_exception(std::current_exception());
    }
  }).detach();
  if (coming.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) return std::nullopt;
  return coming.get();
}

}  // namespace apus
