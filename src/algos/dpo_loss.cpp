// SPDX-License-Identifier: Apache-2.0
#include "algos/dpo_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include <cmath>
#include <functional>
#include <map>

#include "algos/pairs.h"

namespace apus {
namespace {

// How much likelier each answer became than the reference finds it, and the difference that most losses look at.
struct LogRatios {
  const PairLogprobs& logprobs;
  const DpoLossSpec& spec;
  at::Tensor chosen_P, rejected_P, margin_P;
};

// Exponents beyond this are cut, so that an answer that became impossible does not make the loss infinite.
constexpr double kLargestExponent = 50;

at::Tensor margin(const LogRatios& r) {
  const std::string& divergence = r.spec.divergence;
  if (divergence == "js_divergence")
    return r.chosen_P - r.rejected_P - (at::softplus(r.chosen_P) - at::softplus(r.rejected_P));
  if (divergence == "alpha_divergence") {
    const double alpha = r.spec.divergence_alpha;
    const auto power = [&](const at::Tensor& x) { return at::exp((x * -alpha).clamp_max(kLargestExponent)); };
    return (power(r.rejected_P) - power(r.chosen_P)) / alpha;
  }
  return r.chosen_P - r.rejected_P;
}

at::Tensor sigmoid_loss(const LogRatios& r) {
  return smoothed_logistic(r.margin_P * r.spec.beta, r.spec.label_smoothing);
}

at::Tensor robust_loss(const LogRatios& r) {
  const at::Tensor x = r.margin_P * r.spec.beta;
  const double s = r.spec.label_smoothing;
  return (log_sigmoid(x) * -(1 - s) + log_sigmoid(-x) * s) / (1 - 2 * s);
}

at::Tensor hinge_loss(const LogRatios& r) { return at::relu(1 - r.margin_P * r.spec.beta); }

at::Tensor ipo_loss(const LogRatios& r) { return (r.margin_P - 1 / (2 * r.spec.beta)).square(); }

at::Tensor exo_loss(const LogRatios& r) {
  const at::Tensor x = r.margin_P * r.spec.beta;
  const double s = r.spec.label_smoothing > 0 ? r.spec.label_smoothing : 1e-3;
  return at::sigmoid(x) * (log_sigmoid(x) - std::log(1 - s)) + at::sigmoid(-x) * (log_sigmoid(-x) - std::log(s));
}

at::Tensor nca_loss(const LogRatios& r) {
  const at::Tensor c = r.chosen_P * r.spec.beta, l = r.rejected_P * r.spec.beta;
  return -log_sigmoid(c) - log_sigmoid(-c) * 0.5 - log_sigmoid(-l) * 0.5;
}

at::Tensor bco_loss(const LogRatios& r) {
  const at::Tensor c = r.chosen_P * r.spec.beta, l = r.rejected_P * r.spec.beta;
  return -log_sigmoid(c - r.spec.bco_mean) - log_sigmoid(-(l - r.spec.bco_mean));
}

at::Tensor sppo_loss(const LogRatios& r) {
  const double half = 1 / (2 * r.spec.beta);
  return (r.chosen_P - half).square() + (r.rejected_P + half).square();
}

at::Tensor sorted(const at::Tensor& x) { return std::get<0>(x.sort(0)); }

// Distributions are compared instead of pairs: the i-th best of one side with the i-th best of the other.
at::Tensor aot_loss(const LogRatios& r) {
  const PairLogprobs& p = r.logprobs;
  const at::Tensor difference =
      sorted(p.chosen_P - p.rejected_P) - sorted(p.reference_chosen_P - p.reference_rejected_P);
  return smoothed_logistic(difference * r.spec.beta, r.spec.label_smoothing);
}

at::Tensor aot_unpaired_loss(const LogRatios& r) {
  return smoothed_logistic((sorted(r.chosen_P) - sorted(r.rejected_P)) * r.spec.beta, r.spec.label_smoothing);
}

at::Tensor apo_zero_loss(const LogRatios& r) {
  return 1 - at::sigmoid(r.chosen_P * r.spec.beta) + at::sigmoid(r.rejected_P * r.spec.beta);
}

at::Tensor apo_down_loss(const LogRatios& r) {
  return at::sigmoid(r.chosen_P * r.spec.beta) + 1 - at::sigmoid((r.chosen_P - r.rejected_P) * r.spec.beta);
}

// The discovered mixture of the logistic and the exponential loss (arXiv 2406.08414).
at::Tensor discopop_loss(const LogRatios& r) {
  const at::Tensor x = r.margin_P * r.spec.beta;
  const at::Tensor exponential = at::sigmoid(x / r.spec.discopop_tau);
  return -log_sigmoid(x) * (1 - exponential) + at::exp(-x) * exponential;
}

using PairLoss = std::function<at::Tensor(const LogRatios&)>;

const std::map<std::string, PairLoss>& pair_losses() {
  static const std::map<std::string, PairLoss> known = {
      {"sigmoid", sigmoid_loss},   {"hinge", hinge_loss},          {"ipo", ipo_loss},
      {"robust", robust_loss},     {"exo_pair", exo_loss},         {"nca_pair", nca_loss},
      {"bco_pair", bco_loss},      {"sppo_hard", sppo_loss},       {"aot", aot_loss},
      {"apo_zero", apo_zero_loss}, {"apo_down", apo_down_loss},    {"aot_unpaired", aot_unpaired_loss},
      {"discopop", discopop_loss}, {"aot_pair", aot_unpaired_loss}};  // the last: its name before TRL 0.29
  return known;
}

}  // namespace

at::Tensor dpo_losses(const std::string& type, const PairLogprobs& logprobs, const DpoLossSpec& spec) {
  const auto found = pair_losses().find(type);
  require(found != pair_losses().end(), Fault::Bug, "no loss of pairs is named '", type, "'");
  LogRatios ratios{logprobs, spec, logprobs.chosen_P - logprobs.reference_chosen_P,
                   logprobs.rejected_P - logprobs.reference_rejected_P};
  ratios.margin_P = margin(ratios);
  return found->second(ratios);
}

}  // namespace apus
