// SPDX-License-Identifier: Apache-2.0
// Reads rows {"said", "solution"} and writes 1 or 0 for each: is it right? For tests/peers/accuracy.py.
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "reward/math_answer.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const apus::Json row = apus::parse_json(line, "a row", apus::Fault::Data);
    std::cout << apus::same_math_answer(row.at("said").get<std::string>(), row.at("solution").get<std::string>())
              << "\n";
  }
}
