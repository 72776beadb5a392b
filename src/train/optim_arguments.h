// SPDX-License-Identifier: Apache-2.0
// --optim_args read by an optimizer: what it does not ask for is refused.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {

class OptimArguments {
 public:
  OptimArguments(std::string optimizer, const std::map<std::string, std::string>& given)
      : optimizer_(std::move(optimizer)), given_(given) {}
  double number(const char* key, double fallback) {
    const std::string* text = find(key);
    if (!text) return fallback;
    char* end = nullptr;
    const double value = std::strtod(text->c_str(), &end);
    require(end != text->c_str() && !*end, Fault::Usage, "--optim_args: ", key, "=", *text, " is not a number");
    return value;
  }
  bool flag(const char* key, bool fallback) {
    const std::string* text = find(key);
    if (!text) return fallback;
    require(*text == "true" || *text == "True" || *text == "false" || *text == "False", Fault::Usage,
            "--optim_args: ", key, "=", *text, " must be true or false");
    return (*text)[0] == 't' || (*text)[0] == 'T';
  }
  std::string text(const char* key, const std::string& fallback, const std::vector<std::string>& possible) {
    const std::string* text = find(key);
    if (!text) return fallback;
    require(std::find(possible.begin(), possible.end(), *text) != possible.end(), Fault::Usage, "--optim_args: ", key,
            "=", *text, " is not available; possible: ", join(possible));
    return *text;
  }
  void done() const {
    for (const auto& [key, value] : given_)
      require(std::find(known_.begin(), known_.end(), key) != known_.end(), Fault::Usage, "--optim_args: ", optimizer_,
              " has no '", key, "'; it takes ", join(known_));
  }

 private:
  const std::string* find(const char* key) {
    known_.push_back(key);
    const auto found = given_.find(key);
    return found == given_.end() ? nullptr : &found->second;
  }
  std::string optimizer_;
  const std::map<std::string, std::string>& given_;
  std::vector<std::string> known_;
};

}  // namespace apus
