// SPDX-License-Identifier: Apache-2.0
#include "tensor/weight_files.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/nearest.h"
#include "tensor/torch_file.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// file name -> the tensors the index expects in it
std::map<std::string, std::vector<std::string>> read_index(const fs::path& path) {
  nlohmann::json index;
  try {
    index = nlohmann::json::parse(read_file(path, 200'000'000));
  } catch (const nlohmann::json::exception& e) {
    fail(Fault::Model, path.string(), ": no valid JSON: ", e.what());
  }
  require(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(), Fault::Model,
          path.string(), ": 'weight_map' {tensor name: file} is missing");
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    require(file.is_string(), Fault::Model, path.string(), ": weight_map['", name, "'] is no file name");
    const auto text = file.get<std::string>();
    require(!text.empty() && text.find('/') == std::string::npos && text != "..", Fault::Model, path.string(),
            ": weight_map['", name, "'] = '", text, "' must be a plain file name in the same folder");
    files[text].push_back(name);
  }
  return files;
}

// Weights that lie there in a format that is not read, and what to do about it.
std::string weights_of_another_format(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename(), extension = entry.path().extension();
    if (extension == ".gguf") return name + ": give that file itself, --model " + (dir / name).string();
    if (name.starts_with("consolidated."))
      return name + ", another format, which is not read: take the release in HuggingFace's format";
  }
  return "";
}

}  // namespace

std::string single_file(const std::string& stem) { return stem + ".safetensors"; }
std::string index_file(const std::string& stem) { return single_file(stem) + ".index.json"; }

std::string shard_file(const std::string& stem, size_t index, size_t count) {
  if (count == 1) return single_file(stem);
  char number[32];
  std::snprintf(number, sizeof number, "-%05zu-of-%05zu", index + 1, count);
  return stem + number + ".safetensors";
}

SafetensorsHeader parse_weights_header(const std::byte* data, int64_t size, const std::string& where) {
  if (is_torch_file(data, size)) return parse_torch_file(data, size, where);
  require(!where.ends_with(".bin"), Fault::Model, where,
          ": no archive, as PyTorch writes them since version 1.6: load it there with torch.load and save it again");
  return parse_safetensors_header(data, size, where);
}

namespace {
std::vector<WeightFile> indexed_files(const fs::path& dir, const fs::path& index) {
  std::vector<std::string> missing;
  std::vector<WeightFile> found;
  auto files = read_index(index);
  for (auto& [file, names] : files) {
    if (!fs::exists(dir / file)) missing.push_back(file);
    found.push_back({dir / file, std::move(names)});
  }
  require(missing.empty(), Fault::Model, dir.string(), ": ", missing.size(), " of ", files.size(), " shards named by ",
          index.filename().string(), " are missing: ", join(missing), "; download them again");
  return found;
}
}  // namespace

std::vector<WeightFile> weight_files(const fs::path& dir, const std::string& stem) {
  const fs::path single = dir / single_file(stem), index = dir / index_file(stem);
  if (fs::exists(single)) return {{single, {}}};
  if (fs::exists(index)) return indexed_files(dir, index);
  if (stem == "model") {
    const fs::path whole = dir / "pytorch_model.bin", shards = dir / "pytorch_model.bin.index.json";
    if (fs::exists(whole)) return {{whole, {}}};
    if (fs::exists(shards)) return indexed_files(dir, shards);
  }
  const auto listed_by = [&](const std::string& begin, const std::string& ending, const std::string& list) {
    const auto shards =
        std::count_if(fs::directory_iterator(dir), fs::directory_iterator(), [&](const fs::directory_entry& e) {
          const std::string name = e.path().filename();
          return name.starts_with(begin) && name.ends_with(ending);
        });
    require(shards == 0, Fault::Model, dir.string(), ": ", shards, shards == 1 ? " shard lies" : " shards lie",
            " here, but not ", list, ", which says what belongs together; download it again");
  };
  listed_by(stem + "-", ".safetensors", index.filename());
  if (stem == "model") listed_by("pytorch_model-", ".bin", "pytorch_model.bin.index.json");
  const std::string other = weights_of_another_format(dir);
  fail(Fault::Model, dir.string(), ": no ", single.filename().string(), " and no ", index.filename().string(),
       other.empty() ? "" : "; it holds " + other);
}

}  // namespace apus
