// SPDX-License-Identifier: Apache-2.0
// The options of training a model whose vectors stand for texts (--task_type embedding).
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/options.h"

namespace apus {

struct InfonceSettings {
  double temperature = 0.1;
  bool use_batch = true;            // candidates are the documents of all queries; else the query's own
  bool mask_fake_negative = false;  // leave out candidates that are liker than the right one by more than:
  double fake_neg_margin = 0.1;
  // Further candidates: the other queries; all documents, compared with the right one.
  bool include_qq = false, include_dd = false;
};

struct EmbeddingOptions {
  EmbeddingOptions();  // what the environment says
  std::string loss_type = "infonce";
  std::optional<std::string> pooling;  // absent: what the checkpoint says, once it is known
  InfonceSettings infonce;
  std::optional<int64_t> hard_negatives;
  void fields(OptionTable& v);
  void check() const;
  // What was not given is what the checkpoint says; -> what that is.
  Json take_from(const Json& config, const std::string& folder);
  bool of_pairs() const { return loss_type != "infonce"; }
};

}  // namespace apus
