// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <map>

#include "checkpoint/weights.h"

namespace apus {
namespace fs = std::filesystem;

std::vector<DiskShape> disk_shapes(Module& model) {
  std::vector<DiskShape> shapes;
  model.visit([&](const std::string& name, Param& p) {
    if (!p.tied.empty()) return;
    if (p.pieces.empty()) return void(shapes.push_back({name, p.full}));
    const auto count = static_cast<int64_t>(p.pieces.size());
    for (const auto& piece : p.pieces)
      shapes.push_back({name.substr(0, name.rfind('.') + 1) + piece, {p.full[0] * p.full[1] / count, p.full[2]}});
  });
  return shapes;
}

void write_shards(const fs::path& dir, const std::vector<DiskShape>& shapes, at::ScalarType dtype, int64_t max_shard,
                  const std::function<at::Tensor(const DiskShape&)>& make) {
  std::vector<std::vector<DiskShape>> shards(1);
  int64_t in_shard = 0, total = 0;
  for (const auto& t : shapes) {
    int64_t bytes = disk_size(disk_type_of(dtype));
    for (const int64_t d : t.shape) bytes *= d;
    if (in_shard > 0 && in_shard + bytes > max_shard) shards.emplace_back(), in_shard = 0;
    shards.back().push_back(t);
    in_shard += bytes, total += bytes;
  }

  make_writable_dir(dir);
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", Json::object()}};
  for (size_t i = 0; i < shards.size(); ++i) {
    char name[64] = "model.safetensors";
    if (shards.size() > 1) std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    std::vector<SafetensorsWriter::Spec> specs;
    for (const auto& t : shards[i]) specs.push_back({t.name, dtype, t.shape});
    SafetensorsWriter writer(dir / name, specs);
    for (const auto& t : shards[i]) {
      writer.add(t.name, make(t).to(dtype));
      index["weight_map"][t.name] = name;
    }
    writer.commit();
  }
  const fs::path index_path = dir / "model.safetensors.index.json";
  // What an earlier save into the same folder left must not be taken for this one.
  fs::remove(shards.size() > 1 ? dir / "model.safetensors" : index_path);
  if (shards.size() > 1) write_file_atomic(index_path, index.dump(2) + "\n");
}

void save_weights(Module& model, const fs::path& dir, int64_t max_shard, at::ScalarType dtype) {
  std::map<std::string, at::Tensor> data;  // views, no copies
  each_disk_tensor(model, [&](const DiskTensor& t) { data[t.name] = t.data; });
  write_shards(dir, disk_shapes(model), dtype, max_shard, [&](const DiskShape& t) { return data.at(t.name); });
}

}  // namespace apus
