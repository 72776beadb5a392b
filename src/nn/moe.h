// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: a router, stacked experts, optionally a shared expert;
// and the loss that keeps experts busy alike.
#pragma once

#include "device/comm.h"
#include "nn/expert_lora.h"
#include "nn/linear.h"
#include "nn/mlp.h"
#include "nn/router.h"
#include "ops/expert_pairs.h"

namespace apus {

// The balance loss of all layers of one forward: E * sum_e f_e * p_e, with f the share of choices and p the mean
// routing probability, both over tokens and layers together. Its gradient enters each layer's router logits during the
// backward pass, when the sums of all layers are known; so it also works when layers are recomputed.
struct RouterLoss {
  // d(total loss) / d(value()): the coefficient times the trainer's own factor.
  double scale = 0;
  at::Tensor choices_E, probability_E;  // f32 sums, detached
  int64_t rows = 0;                     // tokens * layers
  at::Tensor value() const;             // scalar, detached
  void sum_over(Comm& ranks);           // that share out the tokens
};

// Which experts a router's logits choose, or, of a mixture with a place in them, the step's told_experts; written down
// in its met_experts, and counted in the loss that keeps them busy alike, where the step has one.
ops::Routing counted_routing(at::Tensor logits_TE, const RouterForm& form, int64_t per_token,
                             const at::Tensor& correction_E, const Step& s, std::optional<int64_t> place = {});
// What experts gave for their pairs, weighed and summed into tokens: [T, D] in its own type.
at::Tensor summed(const at::Tensor& y_MD, at::IntArrayRef sizes, const at::Tensor& weight_Tk,
                  const ops::ExpertPairs& pairs);

class Experts : public Module {
 public:
  // clamp, gated, weighs_input, idle, limit: as of MixtureSpec
  struct Kind {
    double clamp = 0;
    bool gated = true, weighs_input = false;
    Activation act = Activation::Silu;  // of gated ones
    int64_t idle = 0;
    double limit = 0;
  };
  Experts(int64_t count, int64_t hidden, int64_t ffn, const MixtureNames& names, Kind kind);
  // Where ranks share out the experts, each calls it with its own tokens; those that share out the experts' matrices
  // call it with the same ones.
  at::Tensor operator()(const at::Tensor& x_TD, const at::Tensor& weight_Tk, const at::Tensor& expert_Tk,
                        const Step& s) const;
  // Those that share out the experts are all given the same tokens: nobody sends any, and the ranks sum what theirs
  // make of them. For inference.
  void tokens_are_everywhere() { everywhere_ = true; }

 private:
  at::Tensor of_own_experts(const at::Tensor& x_TD, const at::Tensor& weight_Tk, const ops::ExpertPairs& pairs,
                            const Step& s) const;
  // A row for each pair, in the order of the experts that are here -> what they make of it, unweighed. Where ranks
  // share out the matrices: this rank's summand.
  at::Tensor of_pairs(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, int64_t tokens, const Step& s) const;
  at::Tensor plain(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, const Step& s) const;
  at::Tensor clamped(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, const Step& s) const;
  // Rows of each expert times its matrix in a stack, in FP8 where training is.
  at::Tensor product(const at::Tensor& rows, const at::Tensor& stack, const ops::ExpertPairs& pairs,
                     const Step& s) const;
  at::Tensor grouped(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, int64_t tokens, const Step& s) const;
  at::Tensor one_by_one(const at::Tensor& x_MD, const ops::ExpertPairs& pairs, const Step& s) const;
  // Rows as experts read them, and what is left to multiply their results by.
  at::Tensor read(const at::Tensor& x_TD, const at::Tensor& weight_Tk, const ops::ExpertPairs& pairs) const;
  at::Tensor left(const at::Tensor& weight_Tk) const;
  at::Tensor inner(const at::Tensor& made_MF) const;
  bool held_quantised() const;
  bool adapted() const;
  at::Tensor gate_up() const;  // [E, 2F, D] of the experts that are here; as it is where it is held quantised
  ExpertMatrices here(const ExpertMatrices& of_all) const;
  // The activation of gates, times ups.
  at::Tensor opened(const at::Tensor& gate_MF, const at::Tensor& up_MF) const;
  Param &gate_up_, &down_;
  Param* up_ = nullptr;  // where gates stand alone
  const Kind kind_;
  bool everywhere_ = false;
  Param *gate_up_bias_ = nullptr, *down_bias_ = nullptr;  // of clamped ones
  // Of each expert: views, for adapters under the names PEFT sees.
  ExpertMatrices gate_of_, up_of_, down_of_;
};

class MoeMlp : public FeedForward {
 public:
  struct Spec {
    int64_t hidden, ffn, experts, per_token;
    int64_t shared_ffn = 0;  // > 0: an expert for every token
    double out_scale = 1;    // MixtureSpec::out_scale
    // As of MixtureSpec; the activation is that of gated experts.
    double clamp = 0;
    bool gated = true;
    int64_t latent = 0;
    bool weighs_input = false;
    int64_t idle = 0;
    double limit = 0, shared_limit = 0;
    int64_t words = 0;  // where experts are chosen by words
    // Where its experts stand among those that a token meets in the whole model (nn/expert_choices.h); absent: nowhere.
    std::optional<int64_t> place = {};
    Activation act = Activation::Silu;
    RouterForm router;
    double router_eps = 1e-6;  // of a router that norms what it reads
    MixtureNames names;
  };
  explicit MoeMlp(Spec spec);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override { return apart(x_TD, x_TD, s); }
  // It has none of its own, and takes this row of another's.
  void use_correction_of(const MoeMlp& other, int64_t row) { correction_ = other.correction_, correction_row_ = row; }
  // The router reads something else than the experts.
  at::Tensor apart(const at::Tensor& x_TD, const at::Tensor& routed_TD, const Step& s) const;

 private:
  Param* make_correction();
  Param* make_words();
  at::Tensor logits(const at::Tensor& routed_TD, const Step& s) const;
  at::Tensor correction() const;  // [E], or undefined: there is none
  ops::Routing routing(const at::Tensor& routed_TD, const Step& s) const;
  Spec spec_;
  Linear& gate_;
  Param *read_scale_ = nullptr, *expert_scale_ = nullptr;  // RouterForm::own_numbers
  Param *correction_ = nullptr, *by_word_ = nullptr, *bias_ = nullptr;
  int64_t correction_row_ = 0;
  Experts& experts_;
  Linear *narrower_ = nullptr, *wider_ = nullptr;
  Mlp* shared_ = nullptr;
  Linear* shared_gate_ = nullptr;
};

}  // namespace apus
