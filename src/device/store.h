// SPDX-License-Identifier: Apache-2.0
// The table of texts that all ranks of a run share:
// how they find each other, and where one that fails leaves its reason.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>

namespace c10d {
class Store;
}

namespace apus {

class Store {
 public:
  struct Spec {
    std::string address;
    int port = 0;
    bool serve = false;      // this process keeps the table for all
    double timeout_s = 600;  // to reach who keeps it
  };
  explicit Store(const Spec& spec);  // c10d's TCPStore
  ~Store();

  void set(const std::string& key, const std::string& value);
  // Waits until somebody sets the key. `what` names it in the message when the time is over.
  std::string get(const std::string& key, double timeout_s, const std::string& what);
  bool has(const std::string& key);
  int64_t add(const std::string& key, int64_t n);  // the sum so far
  c10::intrusive_ptr<::c10d::Store> c10d() const;

  // The first failure of any rank, for the others' messages.
  void report_failure(int rank, const std::string& text) noexcept;
  std::string reported_failure() noexcept;  // "" when there is none, or the table is gone

 private:
  struct Table;
  std::unique_ptr<Table> table_;
};

}  // namespace apus
