// SPDX-License-Identifier: Apache-2.0
#include "text/scores.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace apus {
namespace {

constexpr const char* kMulti = "multi_label_classification";

std::vector<double> softmax(const std::vector<float>& logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> out;
  for (const float x : logits) out.push_back(std::exp(x - most));
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  for (double& x : out) x /= sum;
  return out;
}

}  // namespace

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

LabelledText labelled(const std::vector<float>& logits, const std::string& problem_type) {
  if (problem_type == "regression") return {logits.size() == 1 ? Json(logits[0]) : Json(logits), {}};
  if (problem_type == kMulti) {
    LabelledText out{Json::array(), {}};
    for (size_t i = 0; i < logits.size(); ++i) {
      out.probabilities.push_back(sigmoid(logits[i]));
      if (logits[i] >= 0) out.label.push_back(i);
    }
    return out;
  }
  return {std::max_element(logits.begin(), logits.end()) - logits.begin(), softmax(logits)};
}

Json label_logprobs(const std::vector<float>& logits, const LabelledText& said, const std::string& problem_type,
                    int64_t top) {
  // -log(1 + exp(-x)), without overflow; of a softmax the logits less the logarithm of their sum.
  const auto log_sigmoid = [](double x) { return x >= 0 ? -std::log1p(std::exp(-x)) : x - std::log1p(std::exp(x)); };
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  std::vector<double> logprob;
  for (const float x : logits) logprob.push_back(problem_type == kMulti ? log_sigmoid(x) : x - most - std::log(sum));
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logprob[a] > logprob[b]; });
  order.resize(std::min(order.size(), static_cast<size_t>(top)));
  Json likest = Json::array();
  for (const size_t i : order) likest.push_back({{"index", i}, {"logprob", logprob[i]}});
  Json chosen;
  if (said.label.is_array()) {
    chosen = Json::array();
    for (const Json& i : said.label) chosen.push_back(logprob[i.get<size_t>()]);
  } else {
    chosen = logprob[said.label.get<size_t>()];
  }
  return {{"content", Json::array({{{"index", said.label}, {"logprobs", chosen}, {"top_logprobs", likest}}})}};
}

}  // namespace apus
