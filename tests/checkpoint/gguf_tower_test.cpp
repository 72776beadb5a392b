// SPDX-License-Identifier: Apache-2.0
// Models that see in two GGUF files, one of them their tower's: every weight and every setting comes back.
#include <ATen/core/grad_mode.h>

#include "checkpoint/gguf_export.h"
#include "checkpoint/gguf_folder.h"
#include "checkpoint/weights.h"
#include "gguf/model.h"
#include "models/spec/family.h"
#include "tests/folder.h"
#include "tests/golden.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

// The goldens of families whose tower stands in such a file.
std::vector<std::string> goldens_with_towers() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(golden::models()))
    if (const fs::path config = entry.path() / "checkpoint/config.json"; fs::exists(config))
      if (tower_of_config(Json::parse(read_file(config)))) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class GgufTowers : public ::testing::TestWithParam<std::string> {
 protected:
  GgufTowers() {
    ::setenv("XDG_CACHE_HOME", cache.path.c_str(), 1);
    fs::copy(golden::models() / GetParam() / "checkpoint", from(), fs::copy_options::recursive);
    config = read_model_config(from());
    // Windows of the usual size and in the usual layers, which files do not say.
    if (Json text = config.value("text_config", Json()); text.dump().find("sliding_attention") != std::string::npos)
      config["text_config"].erase("layer_types");
    if (config["vision_config"].contains("window_size")) config["vision_config"]["window_size"] = 112;
    write_file_atomic(from() / "config.json", config.dump());
    write_tokenizer();
  }
  ~GgufTowers() override { ::unsetenv("XDG_CACHE_HOME"); }

  // Bytes, and the tokens that stand for what is seen where config.json has them.
  void write_tokenizer() const {
    Json vocab = Json::object(), added = Json::array();
    for (int c = 33; c < 113; ++c) vocab[std::string(1, static_cast<char>(c))] = c - 33;
    const auto add = [&](const Json& id, const std::string& text) {
      added.push_back({{"id", id}, {"content", text}, {"special", true}, {"normalized", false}});
    };
    add(80, "<|end|>");
    const GgufTower tower = tower_of_config(config)->tower;
    for (const auto& [key, token] : tower.tokens) add(config[key], token);
    if (!tower.row.first.empty()) add(81, tower.row.first);
    const Json level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    write_file_atomic(from() / "tokenizer.json",
                      json_text({{"version", "1.0"},
                                 {"added_tokens", added},
                                 {"pre_tokenizer", level},
                                 {"decoder", level},
                                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}}));
    write_file_atomic(from() / "tokenizer_config.json", R"({"eos_token": "<|end|>"})");
  }
  fs::path from() const { return cache.path / "from"; }
  fs::path file() const { return cache.path / "gguf/model.gguf"; }
  fs::path tower_file() const { return cache.path / "gguf/mmproj-model.gguf"; }
  GgufReport export_it(const char* mix = "f32") const {
    fs::create_directories(file().parent_path());
    return export_gguf({.from = from(), .to = file(), .mix = find_mix(mix), .name = "it"});
  }
  std::map<std::string, at::Tensor> weights(const fs::path& folder) const {
    const auto model = load_model(folder, {.dtype = at::kFloat, .device = at::kCPU});
    std::map<std::string, at::Tensor> all;
    model->visit([&](const std::string& name, Param& p) { all[name] = p.data; });
    return all;
  }
  static double sum(const std::map<std::string, at::Tensor>& all) {
    double out = 0;
    for (const auto& [name, weight] : all) out += weight.to(at::kDouble).sum().item<double>();
    return out;
  }
  test::Folder cache;
  Json config;
};

TEST_P(GgufTowers, EveryWeightAndSettingComesBack) {
  c10::AutoGradMode no_grad(false);
  EXPECT_EQ(export_it().tower, tower_file());
  const fs::path folder = gguf_folder(file());
  const Json back = read_model_config(folder);
  const bool own = !tower_of_config(config)->tower.only_written;
  if (own) EXPECT_EQ(back["model_type"], config["model_type"]);
  for (const auto& [key, value] : back["vision_config"].items())
    if (own && config["vision_config"].contains(key)) EXPECT_EQ(config["vision_config"][key], value) << key;
  EXPECT_TRUE(fs::exists(folder / "preprocessor_config.json"));
  const auto want = weights(from()), got = weights(folder);
  if (!own) {
    EXPECT_NEAR(sum(got), sum(want), 1e-6 * std::fabs(sum(want)));
    return;
  }
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, weight] : want) EXPECT_TRUE(got.count(name) && got.at(name).equal(weight)) << name;
}

// Without the tower's file the text model remains, in the family of its own.
TEST_P(GgufTowers, TheTextAlone) {
  export_it("q8_0");
  fs::remove(tower_file());
  const Json text = read_model_config(gguf_folder(file()));
  EXPECT_FALSE(text.contains("vision_config"));
  EXPECT_EQ(family_of_model_type(text["model_type"], "").form.architecture,
            family_of_model_type(tower_of_config(config)->tower.text, "").form.architecture);
  c10::AutoGradMode no_grad(false);
  EXPECT_FALSE(weights(gguf_folder(file())).empty());
}

TEST_P(GgufTowers, AStrangersTowerIsRefused) {
  export_it();
  fs::copy_file(file(), tower_file(), fs::copy_options::overwrite_existing);
  test::expect_says(test::refusal(Fault::Model, [&] { gguf_folder(file()); }), "'clip'");
}

INSTANTIATE_TEST_SUITE_P(Families, GgufTowers, ::testing::ValuesIn(goldens_with_towers()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace apus
