// SPDX-License-Identifier: Apache-2.0
// Forward passes whose tokens several ranks share out: those that read the same rows, each of which runs its own tokens
// (nn/token_share.h); and those that share out matrices, between these (nn/residual_share.h). All of them are given the
// same rows, and get the hidden states of all tokens; so losses need not know of it, and those ranks train as copies
// that read the same.
#pragma once

#include <memory>
#include <vector>

#include "models/layer_runner.h"

namespace apus {

class Comm;        // device/comm.h
class TokenShare;  // nn/token_share.h

class SequenceRunner final : public LayerRunner {
 public:
  struct Sharers {  // null: there are none
    Comm* of_rows = nullptr;
    int groups = 1;  // of these, as of TokenShare
    Comm* of_residual = nullptr;
  };
  // Each part of the model is run by `inner`. The ranks must outlive what it runs.
  SequenceRunner(Sharers sharers, std::shared_ptr<LayerRunner> inner) : sharers_(sharers), inner_(std::move(inner)) {}

  LayerRange layers(const Model& model) const override { return inner_->layers(model); }
  void prepare(const Inputs& in, Step& s) override;
  at::Tensor embed(const Model& model, const Inputs& in, const Step& s) override;
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override;
  at::Tensor final_norm(const Model& model, const at::Tensor& x_TD) override;
  std::shared_ptr<void> alone() override;

 private:
  at::Tensor embed_own(const Model& model, const Inputs& in, const Step& s);
  const Sharers sharers_;
  std::shared_ptr<LayerRunner> inner_;
  std::shared_ptr<const TokenShare> now_, residual_;  // of the pass that is made; null: each rank makes all of it
  std::weak_ptr<void> alone_;                         // while it lives, each rank makes all of its passes
};

}  // namespace apus
