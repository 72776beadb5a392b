// SPDX-License-Identifier: Apache-2.0
// The options of training a model that rates documents for a query (--task_type reranker, generative_reranker).
#pragma once

#include <string>

#include "base/options.h"
#include "text/rerank_prompt.h"

namespace apus {

struct RerankerOptions {
  RerankerOptions();  // what the environment says
  std::string loss_type = "pointwise_reranker";
  double temperature = 1;
  int64_t least_list = 2, most_positives = 1, most_negatives = 7;
  bool listwise() const { return loss_type.starts_with("listwise"); }
  void fields(OptionTable& v);
};

struct GenerativeRerankerOptions : RerankerOptions {
  GenerativeRerankerOptions();
  RerankWords words;
  void fields(OptionTable& v);
};

}  // namespace apus
