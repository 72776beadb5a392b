// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/vector_reader.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>

#include "models/pooling.h"
#include "tensor/safetensors.h"
#include "tensor/weight_files.h"

namespace apus {
namespace {

at::Tensor weight_of(const TensorFolder& file, const std::string& name, const std::vector<int64_t>& shape,
                     const std::filesystem::path& dir) {
  const TensorEntry* entry = file.find(name);
  require(entry && entry->shape == shape, Fault::Model, dir.string(), ": its weights hold no ", name,
          " of the shape that its config.json says");
  return file.tensor(name, at::kFloat).clone();
}

at::Tensor activated(const std::string& act, const at::Tensor& x) {
  if (act == "tanh") return at::tanh(x);
  if (act == "gelu") return at::gelu(x);
  if (act == "relu") return at::relu(x);
  return act == "silu" ? at::silu(x) : x;
}

}  // namespace

VectorReader::VectorReader(const std::filesystem::path& dir, VectorForm form, at::Device device)
    : form_(std::move(form)) {
  for (const VectorLayer& layer : form_.layers) {
    const std::filesystem::path folder = dir / layer.folder;
    const TensorFolder file(folder);
    const at::Tensor weight = weight_of(file, "linear.weight", {layer.out, layer.in}, folder),
                     bias = layer.bias ? weight_of(file, "linear.bias", {layer.out}, folder) : at::Tensor();
    layers_.emplace_back(weight.to(device), bias.defined() ? bias.to(device) : bias);
  }
}

at::Tensor VectorReader::operator()(const at::Tensor& normed_TD, const Step& s) const {
  at::Tensor x_SD = pooled(normed_TD, s, form_.pooling).to(at::kFloat);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto& [weight, bias] = layers_[i];
    x_SD = activated(form_.layers[i].act, at::linear(x_SD, weight, bias));
  }
  return form_.normalised ? at_length_one(x_SD) : x_SD;
}

}  // namespace apus
