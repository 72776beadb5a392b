// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/vector_files.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace apus {
namespace fs = std::filesystem;
namespace {

constexpr const char *kModules = "modules.json", *kPooling = "1_Pooling/config.json";
constexpr const char* kPackage = "sentence_transformers.models.";

Json json_of_file(const fs::path& file) { return parse_json(read_file(file, 1 << 20), file.string(), Fault::Model); }

Json module_json(int64_t place, const std::string& path, const std::string& type) {
  return {{"idx", place}, {"name", std::to_string(place)}, {"path", path}, {"type", kPackage + type}};
}

}  // namespace

void write_vector_files(const fs::path& dir, const VectorForm& form) {
  make_writable_dir(dir / "1_Pooling"), make_writable_dir(dir / "2_Normalize");
  const Json modules = {module_json(0, "", "Transformer"), module_json(1, "1_Pooling", "Pooling"),
                        module_json(2, "2_Normalize", "Normalize")};
  const Json pooling = {{"word_embedding_dimension", form.width},     {"pooling_mode_cls_token", false},
                        {"pooling_mode_mean_tokens", form.mean},      {"pooling_mode_max_tokens", false},
                        {"pooling_mode_mean_sqrt_len_tokens", false}, {"pooling_mode_weightedmean_tokens", false},
                        {"pooling_mode_lasttoken", !form.mean},       {"include_prompt", true}};
  write_file_atomic(dir / kModules, modules.dump(2) + "\n");
  write_file_atomic(dir / kPooling, pooling.dump(2) + "\n");
  write_file_atomic(dir / "config_sentence_transformers.json",
                    Json({{"prompts", Json::object()}, {"default_prompt_name", nullptr}}).dump(2) + "\n");
}

std::optional<VectorForm> read_vector_files(const fs::path& dir) {
  if (!fs::exists(dir / kModules)) return std::nullopt;
  VectorForm form;
  if (!fs::exists(dir / kPooling)) return form;
  const Json pooling = json_of_file(dir / kPooling);
  form.mean = pooling.value("pooling_mode_mean_tokens", false);
  form.width = pooling.value("word_embedding_dimension", int64_t{0});
  require(form.mean || pooling.value("pooling_mode_lasttoken", false), Fault::Model, (dir / kPooling).string(),
          ": vectors are read off as the last token's state or the mean of all; the file asks for another pooling");
  return form;
}

}  // namespace apus
