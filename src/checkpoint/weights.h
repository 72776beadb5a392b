// SPDX-License-Identifier: Apache-2.0
// Model weights in and out of HuggingFace folders. Knows Param, and no model.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/disk_layout.h"
#include "checkpoint/quantised_weights.h"
#include "checkpoint/unread_tensors.h"
#include "models/model.h"
#include "ops/quantised.h"
#include "tensor/safetensors.h"

namespace apus {

struct LoadOptions {
  at::ScalarType dtype = at::kFloat;  // of the weights in memory
  c10::Device device = c10::Device(c10::kCPU);
  // Of each parameter, when they lie on several devices.
  std::function<c10::Device(const std::string& name)> place = {};
  // Parameters that will be written to (trained): they get memory of their own instead of the mapped file's.
  std::function<bool(const std::string& name)> own = [](const std::string&) { return false; };
  // First values of a parameter that the checkpoint lacks, f32 and whole: of a new head. Undefined: it must be there.
  std::function<at::Tensor(const std::string& name, const std::vector<int64_t>& shape)> fresh = {};
  // Whose weights linear layers hold quantised; null: nobody's.
  const QuantisedWeights* quantised = nullptr;
  bool made_plain = false;                        // they are made plain instead
  ops::Products products = ops::Products::Exact;  // with weights that are held quantised
  // The model is a part of what the files hold: nothing is said of what it does not read.
  bool part_only = false;
  bool answers_only = false;  // embedding and head stay quantised too: no loss and no gradient will ask for them
  // Told of each parameter as soon as it is filled, in visiting order; who has taken its data may let go of it.
  std::function<void(const std::string& name, Param& p)> filled = {};
};

std::string shape_text(const std::vector<int64_t>& shape);  // [2, 3], for errors

Json read_model_config(const std::filesystem::path& dir);  // config.json, checked to be an object

// --torch_dtype, else the checkpoint's dtype, else float32. f16 on a device without f16 arithmetic becomes bf16 where
// that exists there, else f32; `note` says so.
at::ScalarType choose_dtype(const std::string& wanted, const Json& config, c10::Device device, std::string* note);

// Fills every parameter with this rank's part of it; of tensors that need no unpacking no more is read. Missing,
// unexpected and mis-shaped tensors are reported all at once.
UnreadTensors load_weights(Model& model, const TensorFolder& source, const LoadOptions& options);

// The model of a checkpoint folder, loaded; quantised weights stay so.
std::unique_ptr<Model> load_model(const std::filesystem::path& dir, const LoadOptions& options);

// Tensors of another checkpoint that are saved beside the model's, as they are there.
struct Carried {
  std::shared_ptr<const TensorFolder> source;
  std::vector<std::string> names;
};

// As shards of at most `max_shard` bytes, of this type. Where ranks share out parameters, all of them call this
// together and the first writes.
void save_weights(Model& model, const std::filesystem::path& dir, int64_t max_shard, at::ScalarType dtype,
                  const Carried& carried = {});

}  // namespace apus
