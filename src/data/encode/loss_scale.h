// SPDX-License-Identifier: Apache-2.0
// --loss_scale: which turns are learnt, and how much each stretch of an answer counts. `[base][+name]*`: a base
// (default, last_round, all) and tables of weights by name or JSON file, which multiply.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/regex.h"

namespace apus {

enum class LossBase { Default, LastRound, All };

class LossScale {
 public:
  static LossScale parse(const std::string& text);  // Fault::Usage
  LossBase base() const { return base_; }
  bool binary() const { return binary_; }  // no weight but 0 and 1
  bool plain() const { return tables_.empty(); }

  struct Stretch {
    size_t begin, end;
    float weight;
  };
  // An answer's text (valid UTF-8) cut into stretches that have one weight each and together cover it.
  std::vector<Stretch> stretches(std::string_view answer, std::string_view question = {}) const;

 private:
  // Either literal words, which weigh themselves and what follows them, or patterns, which weigh what they match.
  struct Entry {
    std::string word;
    Regex pattern;
    float weight, following;
  };
  struct Table {
    bool literal;
    std::vector<Entry> entries;
    // An answer to a question with this text weighs so much throughout.
    std::vector<std::pair<std::string, float>> questions;
  };
  void add_table(const Json& table, const std::string& name);
  static std::vector<Entry> entries_of(const Json& words, bool literal, const std::string& where);
  static std::vector<Stretch> parts(const Table& table, std::string_view text, std::string_view question);

  LossBase base_ = LossBase::Default;
  bool binary_ = true;
  std::vector<Table> tables_;
};

}  // namespace apus
