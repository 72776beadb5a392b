// SPDX-License-Identifier: Apache-2.0
// What is refused, and in which words.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace apus::test {

// The text of the Error that `run` must throw, and of which kind.
template <class F>
std::string refusal(Fault fault, const F& run) {
  try {
    run();
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, fault) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline void expect_says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
}

}  // namespace apus::test
