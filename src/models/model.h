// SPDX-License-Identifier: Apache-2.0
// What every model offers: all that the trainer, recompute, sharding, the cache and the engine need.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/json.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "nn/step.h"

namespace apus {

struct ModelShape {
  int64_t layers, hidden, heads, kv_heads, head_dim, vocab;
  int64_t max_positions = 0;  // the context the checkpoint was made for
  int64_t experts = 0, experts_per_token = 0;
};

class Model : public Module {
 public:
  virtual const ModelShape& shape() const = 0;
  virtual void begin(Step& s) const = 0;                                        // rotary tables for these positions
  virtual at::Tensor embed(const at::Tensor& id_T, const Step& s) const = 0;    // -> x_TD
  virtual at::Tensor layer(int64_t i, at::Tensor x_TD, const Step& s) const = 0;
  virtual at::Tensor final_norm(const at::Tensor& x_TD) const = 0;
  virtual at::Tensor head_weight() const = 0;                                   // [V, D]
  // What losses multiply, logits = hidden weight': the two above, wider by the head's LoRA factors where it has some.
  virtual std::pair<at::Tensor, at::Tensor> head_factors(const at::Tensor& normed_TD, const Step&) const { return {normed_TD, head_weight()}; }
  virtual at::Tensor head(const at::Tensor& normed_TD, const Step& s) const = 0;  // logits [T, V]

  at::Tensor forward(const at::Tensor& id_T, Step& s) const;  // begin, embed, every layer, final norm -> hidden_TD
};

using MakeModel = std::unique_ptr<Model> (*)(const Json& config);
struct RegisterModel {
  RegisterModel(const char* model_type, MakeModel make);
};

// From a checkpoint's config.json: any of the spellings that transformers has used over the years.
// Parameters are described but hold no data yet. Unknown model_type: Fault::Model naming the known and the nearest.
std::unique_ptr<Model> make_model(const Json& config);
std::vector<std::string> known_models();

}  // namespace apus
