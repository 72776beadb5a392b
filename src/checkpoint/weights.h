// SPDX-License-Identifier: Apache-2.0
// Model weights in and out of HuggingFace folders. Knows Param, and no model.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "models/model.h"
#include "tensor/safetensors.h"

namespace apus {

struct LoadOptions {
  at::ScalarType dtype = at::kFloat;  // of the weights in memory
  c10::Device device = c10::Device(c10::kCPU);
  // Of each parameter, when they lie on several devices.
  std::function<c10::Device(const std::string& name)> place = {};
  // Of each parameter this rank's part by its cuts is read; one rank: all of it.
  MeshLayout mesh = {};
  // Parameters that will be written to (trained): they get memory of their own instead of the mapped file's.
  std::function<bool(const std::string& name)> own = [](const std::string&) { return false; };
};

Json read_model_config(const std::filesystem::path& dir);  // config.json, checked to be an object

// --torch_dtype, else the checkpoint's dtype, else float32. f16 on a device without f16 arithmetic becomes bf16 where
// that exists there, else f32; `note` says so.
at::ScalarType choose_dtype(const std::string& wanted, const Json& config, c10::Device device, std::string* note);

// Fills every parameter. Missing, unexpected and mis-shaped tensors are reported all at once.
void load_weights(Module& model, const TensorFolder& source, const LoadOptions& options);

// The model of a checkpoint folder, loaded.
std::unique_ptr<Model> load_model(const std::filesystem::path& dir, const LoadOptions& options);

// Tensors as they stand on disk: stacked parameters in their pieces, tied ones left out, in visiting order.
struct DiskTensor {
  std::string name;
  at::Tensor data;
};
void each_disk_tensor(Module& model, const std::function<void(const DiskTensor&)>& f);

// What a model's tensors look like on disk, loaded or not.
struct DiskShape {
  std::string name;
  std::vector<int64_t> shape;
};
std::vector<DiskShape> disk_shapes(Module& model);

// Writes tensors as HuggingFace shards of at most `max_shard` bytes, with an index when there are several. `make` is
// asked for one tensor at a time, in order, so memory holds one tensor;
// it may return any float type, `dtype` is written.
void write_shards(const std::filesystem::path& dir, const std::vector<DiskShape>& shapes, at::ScalarType dtype,
                  int64_t max_shard, const std::function<at::Tensor(const DiskShape&)>& make);

void save_weights(Module& model, const std::filesystem::path& dir, int64_t max_shard, at::ScalarType dtype);

}  // namespace apus
