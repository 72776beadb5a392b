// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <cstdio>
#include <map>

#include "checkpoint/weights.h"

namespace apus {
namespace fs = std::filesystem;

int64_t parse_size(const std::string& text) {
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  std::string unit;
  for (size_t i = used; i < text.size(); ++i)
    if (!std::isspace(static_cast<unsigned char>(text[i]))) unit += static_cast<char>(std::toupper(static_cast<unsigned char>(text[i])));
  const std::map<std::string, double> units{{"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"KIB", 1024.}, {"MIB", 1048576.}, {"GIB", 1073741824.}};
  require(value > 0 && units.count(unit), Fault::Usage, "'", text, "' is no size; write it like 5GB, 200MB or 1GiB");
  return static_cast<int64_t>(value * units.at(unit));
}

void save_weights(Module& model, const fs::path& dir, int64_t max_shard, at::ScalarType dtype) {
  std::vector<std::vector<SafetensorsWriter::Spec>> shards(1);
  int64_t in_shard = 0, total = 0;
  const int64_t element = disk_size(disk_type_of(dtype));
  each_disk_tensor(model, [&](const DiskTensor& t) {
    const int64_t bytes = t.data.numel() * element;
    if (in_shard > 0 && in_shard + bytes > max_shard) shards.emplace_back(), in_shard = 0;
    shards.back().push_back({t.name, dtype, t.data.sizes().vec()});
    in_shard += bytes, total += bytes;
  });

  make_writable_dir(dir);
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", Json::object()}};
  std::vector<std::unique_ptr<SafetensorsWriter>> writers;
  std::map<std::string, SafetensorsWriter*> writer_of;
  for (size_t i = 0; i < shards.size(); ++i) {
    char name[64] = "model.safetensors";
    if (shards.size() > 1) std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    writers.push_back(std::make_unique<SafetensorsWriter>(dir / name, shards[i]));
    for (const auto& spec : shards[i]) {
      writer_of[spec.name] = writers.back().get();
      index["weight_map"][spec.name] = name;
    }
  }
  each_disk_tensor(model, [&](const DiskTensor& t) { writer_of.at(t.name)->add(t.name, t.data.to(dtype)); });
  for (auto& writer : writers) writer->commit();
  if (shards.size() > 1) write_file_atomic(dir / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace apus
