// SPDX-License-Identifier: Apache-2.0
// The keys of several people: whose a key is, what each may ask for in a minute, and what each has had. Thread-safe.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

// So much a minute, saved up for one minute at most. What is not known beforehand is taken afterwards, and may become a
// debt. Times are seconds of a clock that only goes on.
class Allowance {
 public:
  explicit Allowance(int64_t a_minute = 0) : limit_(static_cast<double>(a_minute)), left_(limit_) {}
  bool limited() const { return limit_ > 0; }
  int64_t a_minute() const { return static_cast<int64_t>(limit_); }
  // Seconds until `amount` is there; 0: it is.
  double wait_for(double amount, double now);
  void take(double amount, double now);

 private:
  void refill(double now);
  double limit_, left_, at_ = 0;
};

class KeyBook {
 public:
  // {"alice": "KEY", "bob": {"key": "KEY", "requests_per_minute": 60, "tokens_per_minute": 20000}}; Fault::Usage where
  // it is something else, or two have the same key.
  explicit KeyBook(std::filesystem::path file);
  // Again, if the file has changed: what each has had stays with the name. What is wrong with it is a warning, and the
  // keys stay as they are.
  void look_again();

  std::optional<std::string> holder(const std::string& key) const;
  // A request of that person for the model; ApiError 429 where it is too early.
  void admit(const std::string& name, double now);
  void had(const std::string& name, int64_t prompt_tokens, int64_t completion_tokens, double now);
  // [{"name", "requests", "refused", "prompt_tokens", "completion_tokens"}]; of one person, or of all.
  Json usage(const std::string& name = "") const;
  std::string prometheus() const;

 private:
  struct Person {
    Allowance requests, tokens;
    int64_t asked = 0, refused = 0, prompt = 0, completion = 0;
  };
  void read();
  const std::filesystem::path file_;
  std::filesystem::file_time_type read_at_{};
  mutable std::mutex mutex_;
  std::map<std::string, std::string> names_;  // by the digest of the key
  std::map<std::string, Person> people_;
};

}  // namespace apus
