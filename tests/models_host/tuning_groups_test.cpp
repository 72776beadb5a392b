// SPDX-License-Identifier: Apache-2.0
// What --freeze_llm, --freeze_vit and --freeze_aligner leave to train.
#include "models/spec/tuning_groups.h"

#include <gtest/gtest.h>

#include <set>

#include "base/pattern.h"
#include "models/spec/presets.h"
#include "plan/model_facts.h"

namespace apus {
namespace {

std::set<std::string> meant(const ModelFacts& model, const FrozenGroups& frozen) {
  std::set<std::string> names;
  const std::string expression = all_linear_expression(*model.seeing, frozen, model.linear_modules());
  if (expression.empty()) return names;
  const Pattern pattern(expression, "test");
  for (const std::string& module : model.linear_modules())
    if (pattern.matches(module)) names.insert(module);
  return names;
}

TEST(TuningGroups, AllLinearMeansWhatIsNotFrozen) {
  for (const char* preset : {"qwen2-vl-2b", "qwen2.5-vl-7b", "qwen3-vl-8b", "qwen3-vl-30b-a3b"}) {
    const ModelFacts model = model_facts(preset_config(preset));
    size_t all = 0;
    for (const auto& [frozen, group] :
         {std::pair{FrozenGroups{.llm = false, .vit = true, .aligner = true}, "language"},
          std::pair{FrozenGroups{.llm = true, .vit = false, .aligner = true}, "blocks"},
          std::pair{FrozenGroups{.llm = true, .vit = true, .aligner = false}, "merger"}}) {
      const auto names = meant(model, frozen);
      EXPECT_FALSE(names.empty()) << preset << " " << group;
      all += names.size();
      for (const std::string& name : names) {
        EXPECT_NE(name.find(group), std::string::npos) << preset << " " << name;
        EXPECT_FALSE(is_frozen(*model.seeing, frozen, name)) << preset << " " << name;
      }
    }
    const auto every = meant(model, {.llm = false, .vit = false, .aligner = false});
    EXPECT_EQ(every.size(), all) << preset;
    EXPECT_FALSE(every.count("lm_head")) << preset;
    EXPECT_TRUE(meant(model, {.llm = true, .vit = true, .aligner = true}).empty()) << preset;
  }
}

// Also where a tower's names lie below the language's.
TEST(TuningGroups, AllLinearOfTheLanguageLeavesTowersAlone) {
  for (const char* preset : {"phi3.5-vision", "phi4-multimodal", "phi4-multimodal-hf", "whisper-tiny"}) {
    const ModelFacts model = model_facts(preset_config(preset));
    const FrozenGroups frozen{.llm = false, .vit = true, .aligner = true};
    const auto names = meant(model, frozen);
    EXPECT_GE(names.size(), 32u) << preset;
    for (const std::string& name : names) EXPECT_FALSE(is_frozen(*model.seeing, frozen, name)) << preset << " " << name;
  }
}

double rate_of(const std::vector<std::pair<std::string, double>>& rates, const std::string& name) {
  for (const auto& [prefix, rate] : rates)
    if (name.starts_with(prefix)) return rate;
  return -1;
}

TEST(TuningGroups, LearnAtRatesOfTheirOwn) {
  const ModelFacts model = model_facts(preset_config("qwen2.5-vl-7b"));
  std::string tower, aligner, language;
  for (const std::string& name : model.linear_modules())
    (name.find("merger") != std::string::npos   ? aligner
     : name.find("blocks") != std::string::npos ? tower
                                                : language) = name;
  const auto both = rates_of_groups(*model.seeing, 1e-4, 1e-5, 2e-5);
  EXPECT_EQ(rate_of(both, tower), 1e-5) << tower;
  EXPECT_EQ(rate_of(both, aligner), 2e-5) << aligner;
  EXPECT_EQ(rate_of(both, language), -1) << language;
  const auto one = rates_of_groups(*model.seeing, 1e-4, 1e-5, {});
  EXPECT_EQ(rate_of(one, aligner), 1e-4) << "the aligner lies within the tower";
}

}  // namespace
}  // namespace apus
