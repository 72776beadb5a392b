// SPDX-License-Identifier: Apache-2.0
// What every model offers: all that the trainer, recompute, sharding, the cache and the engine need.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  virtual void begin(Step& s) const = 0;                                      // rotary tables for these positions
  virtual at::Tensor embed(const at::Tensor& id_T, const Step& s) const = 0;  // -> x_TD
  virtual at::Tensor layer(int64_t i, at::Tensor x_TD, const Step& s) const = 0;
  virtual at::Tensor final_norm(const at::Tensor& x_TD) const = 0;
  virtual at::Tensor head_weight() const = 0;  // [V, D]
  // As the forward pass of `s` left it: a tied head gives its gradient to the embedding, not to the parameter.
  at::Tensor trained_head(const Step& s) const { return s.table && s.table->defined() ? *s.table : head_weight(); }
  // What losses multiply: hidden states and weight, and the head's LoRA factors where it has some.
  virtual ops::HeadFactors head_factors(const at::Tensor& normed_TD, const Step& s) const;
  virtual at::Tensor head(const at::Tensor& normed_TD, const Step& s) const = 0;  // logits [T, V]

  at::Tensor forward(const at::Tensor& id_T, Step& s) const;  // begin, embed, every layer, final norm -> hidden_TD

  // The modules behind these calls, by name: what lies on one device as a whole. A module that no name covers (a vision
  // tower) runs inside embed().
  // The module that holds all but the heads; files of it alone leave its name out.
  virtual std::string backbone_name() const { return "model"; }
  virtual std::string embed_name() const { return "model.embed_tokens"; }
  virtual std::string layer_name(int64_t i) const { return "model.layers." + std::to_string(i); }
  virtual std::string norm_name() const { return "model.norm"; }
  virtual std::string head_name() const { return "lm_head"; }

  // Where each of them lies, when that is not one device for all. forward() then moves the tokens along, from the
  // embedding's device, where ids and step must be, to the head's, where its result is. To be said before loading.
  struct Places {
    at::Device embed, norm, head;
    std::vector<at::Device> layer;
  };
  void spread(Places places) { places_ = std::move(places); }
  const std::optional<Places>& places() const { return places_; }
  at::Device place_of(const std::string& name) const;  // of a module or parameter, when it is spread

 private:
  at::Tensor forward_over_devices(const at::Tensor& id_T, Step& s) const;
  std::optional<Places> places_;
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
