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

}  // namespace
}  // namespace apus
