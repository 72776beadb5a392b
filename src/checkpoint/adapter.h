// SPDX-License-Identifier: Apache-2.0
// Adapters on a model, of any kind (adapter_kinds.h), and their PEFT folders. The base's parameters are frozen; what an
// adapter trains whole (modules_to_save, biases) gets memory of its own.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/adapter_config.h"
#include "models/model.h"
#include "nn/lora.h"

namespace apus {

std::vector<std::string> linear_modules(Module& model);  // names, in order

struct Adapter {
  std::string name = "default";
  LoraConfig config;
  std::vector<std::string> saved_params;  // full names of base parameters trained whole
  // PiSSA and OLoRA change the base: the factors that were taken out of it. With them the saved adapter fits the plain
  // base again.
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> taken_out;  // module -> (A, B) at the start
};

// A fresh adapter on all modules that the config means, with first values by config.init. `wide` is the factors' type.
Adapter make_adapter(Model& model, LoraConfig config, uint64_t seed, at::ScalarType wide = at::kFloat,
                     const std::string& name = "default");

// An adapter folder onto the model. Names and shapes are compared with the model's first; all that does not fit is
// named at once.
Adapter load_adapter(Model& model, const std::filesystem::path& dir, const std::string& name = "default",
                     double dropout = 0);

// Whether it changes parameters of the base itself (modules_to_save, biases, rows of tokens), which it therefore shares
// with nobody.
bool changes_base(const std::filesystem::path& dir);

// For answering, beside other adapters of the same model: none of the base's parameters may be its own, and all of it
// is taken away again by detach_adapter(), or when it does not fit. DoRA looks at weights that a packed layer has let
// go of: `read` gives them once more.
using ReadWeight = std::function<at::Tensor(const std::string& name)>;
void load_adapter_beside(Model& model, const std::filesystem::path& dir, const std::string& name, at::ScalarType type,
                         const ReadWeight& read);
// TrainedDelta::settle() of all its changes.
void settle_adapter(Model& model, const std::string& name, at::ScalarType type, const ReadWeight& read = {});
void detach_adapter(Model& model, const std::string& name);

// Puts the values of a folder that save_adapter() wrote for this very adapter back (resume; PiSSA included).
void restore_adapter(Model& model, Adapter& adapter, const std::filesystem::path& dir);

// adapter_config.json, adapter_model.safetensors, additional_config.json. Where ranks share out parameters, all of them
// call this together and the first writes.
void save_adapter(Model& model, const Adapter& adapter, const std::filesystem::path& dir, const Json& additional);

// Why an adapter with lora_bias cannot be merged: behind the layer's name.
inline constexpr const char* kNoBias =
    " has no bias in the base model, which the adapter's lora_bias could be added to: use the adapter as it is "
    "(--adapters)";

// Folds an attached adapter into the weights, in f32 and rounded once; the adapter is detached.
void merge_attached(Model& model, const Adapter& adapter);

}  // namespace apus
