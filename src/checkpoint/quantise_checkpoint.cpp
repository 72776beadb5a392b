// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantise_checkpoint.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "checkpoint/file_names.h"
#include "quant/narrow.h"
#include "tensor/stored_folder.h"
#include "tensor/stored_writer.h"
#include "tensor/weight_files.h"

namespace apus {
namespace fs = std::filesystem;

namespace {
constexpr int64_t kPieces = 6, kLongestPiece = 48;  // of a quantised layer

// The module that a plain tensor of a matrix or more belongs to, but for embeddings, which nobody quantises.
std::optional<std::string> plain_module(const std::string& name, const StoredTensor& tensor) {
  if (tensor.shape.size() < 2 || name.find("embed") != std::string::npos) return std::nullopt;
  return name.substr(0, name.rfind('.'));
}

// The layer that a tensor is the weight of; empty: it stays as it is.
std::string layer_of(const std::string& tensor, const QuantiseSpec& spec) {
  const std::string end = ".weight";
  if (!tensor.ends_with(end)) return "";
  const std::string layer = tensor.substr(0, tensor.size() - end.size());
  // Files of a backbone alone leave its name out.
  const bool meant = spec.layers.count(layer) || spec.layers.count("model." + layer);
  return meant ? layer : "";
}

struct Shard {
  std::vector<std::string> names;
  int64_t bytes = 0, header = 0;
};

// No quantised tensor is larger than a byte and a bit for each number.
std::vector<Shard> shards_of(const StoredFolder& source, const QuantiseSpec& spec) {
  std::vector<Shard> shards(1);
  for (const auto& [name, tensor] : source.all()) {
    const int64_t most = layer_of(name, spec).empty()
                             ? tensor.bytes
                             : std::min(tensor.bytes, tensor.count() + tensor.count() / 16) + 4096;
    if (shards.back().bytes > 0 && shards.back().bytes + most > spec.max_shard) shards.emplace_back();
    Shard& shard = shards.back();
    shard.names.push_back(name);
    shard.bytes += most;
    shard.header += kPieces * (StoredWriter::header_space_for(name) + kLongestPiece);
  }
  return shards;
}

quant::Pieces quantised(const std::string& name, const StoredTensor& weight, const quant::Wish& wish) {
  require(weight.shape.size() == 2, Fault::Model, name, " is no matrix, which alone can be quantised");
  const auto& types = quant::kScaleTypes;
  require(std::find(types.begin(), types.end(), weight.type) != types.end(), Fault::Model, name, " is ",
          disk_name(weight.type), "; quantised are float32, bfloat16 and float16");
  std::vector<float> wide(static_cast<size_t>(weight.count()));
  quant::numbers_of(weight, wide.data());
  return wish.quantise(wide, {weight.shape[0], weight.shape[1]});
}

// Of `made` by a tensor's name; files of a backbone alone leave its name out. Null: it is not there.
template <class T>
const T* made_one(const std::map<std::string, T>& made, const std::string& name) {
  for (const std::string& known : {name, "model." + name})
    if (const auto it = made.find(known); it != made.end()) return &it->second;
  return nullptr;
}

// The numbers in the type that the file has there.
StoredTensor in_type_of(const StoredTensor& numbers, const StoredTensor& like) {
  require(numbers.shape == like.shape, Fault::Bug, "calibration changed the shape of a tensor");
  if (like.type == DiskType::F32) return numbers;
  std::vector<float> wide(static_cast<size_t>(numbers.count()));
  quant::numbers_of(numbers, wide.data());
  std::vector<uint16_t> narrow(wide.size());
  (like.type == DiskType::F16 ? quant::to_f16 : quant::to_bf16)(wide.data(), numbers.count(), narrow.data());
  return stored(like.type, like.shape, std::move(narrow));
}

quant::Pieces pieces_of(const std::string& name, const std::string& layer, const StoredTensor& weight,
                        const QuantiseSpec& spec) {
  if (!spec.made) return quantised(name, weight, spec.wish);
  const quant::Pieces* const pieces = made_one(spec.made->layers, layer);
  require(pieces, Fault::Bug, "calibration left out ", layer);
  return *pieces;
}

}  // namespace

QuantiseReport quantise_checkpoint(const QuantiseSpec& spec) {
  const StoredFolder source(spec.base);
  const auto shards = shards_of(source, spec);
  QuantiseReport report;
  report.files = static_cast<int64_t>(shards.size());
  Json weight_map = Json::object();
  std::set<std::string> plain;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string file = shard_file(kModelWeights, i, shards.size());
    StoredWriter writer(spec.output / file, shards[i].header);
    const auto add = [&](const std::string& name, const StoredTensor& tensor) {
      writer.add(name, tensor);
      weight_map[name] = file;
    };
    for (const std::string& name : shards[i].names) {
      const StoredTensor& tensor = *source.find(name);
      report.bytes_before += tensor.bytes;
      if (const std::string layer = layer_of(name, spec); layer.empty()) {
        const StoredTensor* const other = spec.made ? made_one(spec.made->changed, name) : nullptr;
        add(name, other ? in_type_of(*other, tensor) : tensor);
        if (const auto module = plain_module(name, tensor)) plain.insert(*module);
      } else {
        for (const auto& [piece, data] : pieces_of(name, layer, tensor, spec)) add(layer + "." + piece, data);
        ++report.quantised;
      }
      forget_mapped(tensor.data, tensor.bytes);
      spec.progress(++report.tensors, static_cast<int64_t>(source.all().size()));
    }
    report.bytes += writer.bytes();
    writer.commit();
  }
  require(report.quantised > 0, Fault::Model, spec.base.string(), " holds no weight that could be quantised");
  if (shards.size() > 1)
    write_file_atomic(spec.output / index_file(kModelWeights),
                      Json({{"metadata", {{"total_size", report.bytes}}}, {"weight_map", weight_map}}).dump(2) + "\n");
  const fs::path path = spec.base / kModelConfigFile;
  Json config = parse_json(read_file(path, 16 << 20), path.string(), Fault::Model);
  config["quantization_config"] =
      spec.made ? spec.made->config : spec.wish.config(config, {plain.begin(), plain.end()});
  write_file_atomic(spec.output / kModelConfigFile, config.dump(2) + "\n");
  return report;
}

}  // namespace apus
