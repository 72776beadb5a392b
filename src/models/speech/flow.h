// SPDX-License-Identifier: Apache-2.0
// A picture of sound (mel) from codes: a transformer says in which direction noise is to move, step by step.
#pragma once

#include "models/spec/flow_spec.h"
#include "models/towers/parts.h"
#include "nn/module.h"

namespace apus {

class Flow {
 public:
  explicit Flow(const FlowSpec& spec);
  TowerParts& parts() { return parts_; }
  // How a voice is told: numbers of its own, and what MannerSpec finds in its sample, and in silence.
  struct Voice {
    at::Tensor own_V, manner_E, no_manner_E;
  };
  at::Device device() const;  // of the parts, which all that is given lies on too
  // code_F int64, noise_TM [frames * repeats, bands] -> mel_TM.
  at::Tensor mel(const at::Tensor& code_F, const Voice& voice, const at::Tensor& noise_TM) const;

 private:
  // Which rows see which, in one kind of layer.
  struct Sight {
    at::Tensor keys;  // the rows that are seen, block by block; undefined: those of the same block
    at::Tensor cu_q, cu_k;
    int64_t max_q = 0, max_k = 0;
  };
  struct Told {
    at::Tensor rest;      // what stands beside mel in each row: first as the codes say it, then without them
    at::Tensor cos, sin;  // [rows, 1, half of a head]
    Sight sights[2][2];   // [sees behind][sees ahead]
  };
  Told told(const at::Tensor& code_F, const Voice& voice) const;
  Sight sight(int64_t rows, bool behind, bool ahead, at::Device device) const;
  at::Tensor direction(double time, const at::Tensor& mel_TM, const Told& told) const;
  at::Tensor layer(int64_t i, const at::Tensor& x_TD, const at::Tensor& time_1D, const Told& told) const;
  at::Tensor attended(const std::string& name, const at::Tensor& x_TD, const Told& told, const Sight& sight) const;
  at::Tensor time_row(double time, const at::TensorOptions& options) const;
  at::Tensor linear(const std::string& name, const at::Tensor& x_TD) const;

  const FlowSpec& spec_;
  TowerParts parts_;
};

}  // namespace apus
