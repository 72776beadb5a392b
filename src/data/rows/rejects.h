// SPDX-License-Identifier: Apache-2.0
// Rows that cannot be used: the first are shown one by one, the rest counted by reason, all kept in a file; or the
// first one ends the run. Remarks about rows that are used but look wrong are shown and counted the same way.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "data/rows/row.h"

namespace apus {

class RejectLog {
 public:
  struct Spec {
    std::filesystem::path file;  // rejected.jsonl; empty: not kept
    bool strict = false;         // the first bad row ends the run
    int shown = 20;
  };
  explicit RejectLog(Spec spec) : spec_(std::move(spec)) {}

  void add(const RowError& error, const Json* row = nullptr);  // a row met twice (another epoch) counts once
  void remark(const Origin& origin, const std::string& text);
  void summarize();  // counts by reason, when more were met than shown
  int64_t count() const;
  int64_t remarks() const;

 private:
  void write(const RowError& error, const Json* row);
  const Spec spec_;
  mutable std::mutex mutex_;
  std::set<std::string> met_;
  std::map<std::string, int64_t> reasons_, remarks_;
  int64_t count_ = 0, remark_count_ = 0;
  std::ofstream file_;
};

// A reason without its particulars, so that alike ones count together: numbers and quoted texts become "...".
std::string reason_class(const std::string& key, const std::string& reason);

}  // namespace apus
