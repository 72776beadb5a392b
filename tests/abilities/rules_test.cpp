// SPDX-License-Identifier: Apache-2.0
// What goes together, by rule: each refusal names both sides and a way that works; a toy algorithm and toy shapes
// follow the same rules without another file touched.
#include <gtest/gtest.h>

#include "abilities/combination.h"
#include "base/error.h"
#include "base/files.h"
#include "models/spec/cutting.h"
#include "models/spec/presets.h"
#include "tests/paths.h"

namespace apus {
namespace {

const AlgorithmInfo kPlain{.summary = "a loss of one pass"};

Combination plain() { return {.algorithm = &kPlain, .asked = "apus toy", .tuner = "lora"}; }

// All refusals in one text.
std::string told(const Combination& wanted) {
  std::string out;
  for (const std::string& reason : refusals(wanted)) out += reason + "\n";
  return out;
}

bool tells(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Rules, OneProcessAndPlainMeshesAreAllowed) {
  EXPECT_EQ(told(plain()), "");
  for (const auto& take :
       std::vector<void (*)(Combination&)>{[](Combination& c) { c.tensor = 2; }, [](Combination& c) { c.experts = 2; },
                                           [](Combination& c) { c.stages = 2; }, [](Combination& c) { c.tokens = 2; },
                                           [](Combination& c) { c.zero = 3; }}) {
    Combination wanted = plain();
    take(wanted);
    EXPECT_EQ(told(wanted), "");
  }
}

TEST(Rules, AnAlgorithmsNeedsDecide) {
  AlgorithmInfo draws = kPlain, numbers = kPlain, passes = kPlain, head = kPlain;
  draws.asks_rows = true, numbers.head = Head::Scalar, passes.one_pass = false, head.reads_head = true;
  Combination wanted = plain();
  wanted.tensor = 2;
  wanted.algorithm = &draws;
  EXPECT_EQ(told(wanted), "");
  wanted.algorithm = &numbers;
  EXPECT_EQ(told(wanted), "");
  wanted.algorithm = &head;
  EXPECT_TRUE(tells(told(wanted), "rows of the head"));
  wanted.algorithm = &passes;
  EXPECT_EQ(told(wanted), "");
  wanted.tensor = 1, wanted.stages = 2;
  EXPECT_TRUE(tells(told(wanted), "whose loss needs more than the last stage knows"));
  wanted.algorithm = &numbers;
  EXPECT_TRUE(tells(told(wanted), "whose loss needs more than the last stage knows"));
  wanted.algorithm = &draws;
  EXPECT_TRUE(tells(told(wanted), "--pipeline_model_parallel_size is not available for apus toy, which draws answers"));
  EXPECT_TRUE(tells(told(wanted), "Use --tensor_model_parallel_size"));
  wanted.stages = 1, wanted.tokens = 2, wanted.algorithm = &draws;
  EXPECT_TRUE(tells(told(wanted), "--sequence_parallel_size is not available for apus toy, which draws answers"));
  draws.shares_answers = true;
  EXPECT_EQ(told(wanted), "");
}

// Not to be mixed up with ranks that share out the tokens of rows.
TEST(Rules, TokensBetweenMatricesNeedRanksThatShareOutThese) {
  Combination wanted = plain();
  wanted.tensor = 2, wanted.residual = true;
  EXPECT_EQ(told(wanted), "");
  wanted.tokens = 2, wanted.zero = 3;
  EXPECT_EQ(told(wanted), "");
  wanted = plain(), wanted.residual = true, wanted.tokens = 2;
  EXPECT_TRUE(tells(told(wanted), "give --tensor_model_parallel_size with it"));
}

TEST(Rules, SettingsOfAnAlgorithmAreNamedByTheirFlag) {
  Combination wanted = plain();
  wanted.needs.whole_logits = "--enable_toy_loss", wanted.tensor = 2;
  EXPECT_TRUE(tells(told(wanted), "--enable_toy_loss looks at all words at once"));
  wanted = plain(), wanted.needs.one_process = "--loss_type toy", wanted.stages = 2;
  EXPECT_TRUE(tells(told(wanted), "--loss_type toy keeps a mean"));
  wanted = plain(), wanted.needs.steady_rows = true, wanted.experts = 2;
  EXPECT_TRUE(tells(told(wanted), "--deterministic_rollout is not available with --expert_model_parallel_size"));
  wanted = plain(), wanted.needs.rows_apart = "--toy_rows", wanted.tensor = 2;
  EXPECT_TRUE(tells(told(wanted), "--toy_rows is not available with --tensor_model_parallel_size"));
  wanted = plain(), wanted.needs.rows_apart = "--toy_rows", wanted.tokens = 2;
  EXPECT_TRUE(tells(told(wanted), "--toy_rows is not available with --sequence_parallel_size"));
  ModelFacts dense, mixture;
  dense.type = "toy", mixture.experts = 4;
  wanted = plain(), wanted.needs.met_experts = "--toy_replay", wanted.model = &dense;
  EXPECT_TRUE(tells(told(wanted), "--toy_replay: the model (toy) has no mixtures of experts"));
  wanted.model = &mixture;
  EXPECT_FALSE(tells(told(wanted), "--toy_replay"));
}

TEST(Rules, QuantisedWeightsAreCutAndNotTrained) {
  Combination wanted = plain();
  wanted.quantised = true;
  for (const int zero : {0, 2, 3}) {
    wanted.zero = zero;
    EXPECT_EQ(told(wanted), "");
  }
  wanted.zero = 0, wanted.stages = 2;
  EXPECT_EQ(told(wanted), "");
  wanted.stages = 1, wanted.tensor = 2;
  EXPECT_EQ(told(wanted), "");
  wanted.tensor = 1, wanted.tuner = "full";
  EXPECT_TRUE(tells(told(wanted), "cannot be trained: use --tuner_type lora"));
}

TEST(Rules, AModelsDescriptionDecides) {
  struct Case {
    const char* preset;
    const char* tensor;  // part of the reason; null: it can be cut
  };
  for (const Case& c : std::vector<Case>{{"qwen3-8b", nullptr},
                                         {"internlm3-8b", nullptr},
                                         {"granite3-1b-a400m", nullptr},
                                         {"deepseek-v3", "share one vector a token"},
                                         {"phi3-mini", "one matrix makes queries, keys and values"},
                                         {"glm4-9b", "gate and values"},
                                         {"olmo2-7b", "normalised together"},
                                         {"gpt-oss-20b", "sink"},
                                         {"qwen3-next-80b-a3b", "keep a state"}}) {
    const ModelFacts facts = model_facts(preset_config(c.preset));
    Combination wanted = plain();
    wanted.model = &facts, wanted.tensor = 2;
    const std::string why = told(wanted);
    if (c.tensor)
      EXPECT_TRUE(tells(why, c.tensor) && tells(why, facts.type) && tells(why, "--deepspeed zero3"))
          << c.preset << ": " << why;
    else
      EXPECT_EQ(why, "") << c.preset;
  }
}

TEST(Rules, SizesOfTheModelBoundTheMesh) {
  const ModelFacts facts = model_facts(preset_config("qwen3-30b-a3b"));  // 32 heads, 128 experts
  Combination wanted = plain();
  wanted.model = &facts, wanted.model_name = "toy-model", wanted.tensor = 64;
  EXPECT_TRUE(tells(told(wanted), "toy-model has 32: give that many at most"));
  wanted.tensor = 1, wanted.experts = 256;
  EXPECT_TRUE(tells(told(wanted), "have 128 experts: give that many at most"));
  const ModelFacts dense = model_facts(preset_config("qwen3-8b"));
  wanted.model = &dense, wanted.experts = 2;
  EXPECT_TRUE(tells(told(wanted), "toy-model has no experts"));
}

// Keys and values go round where heads do not suffice, so that there may be any number of ranks.
TEST(Rules, TokensAreSharedOutByHeadsAndByARing) {
  struct Case {
    const char* preset;
    int64_t ranks, tensor, heads, groups;
  };
  for (const Case& c : std::vector<Case>{{"qwen3-8b", 4, 1, 4, 1},  // 8 key-value heads
                                         {"qwen3-8b", 6, 1, 2, 3},
                                         {"qwen3-8b", 64, 1, 8, 8},
                                         {"qwen3-8b", 4, 4, 2, 2},
                                         {"qwen3-8b", 2, 16, 1, 2},
                                         {"gemma-2b", 4, 1, 1, 4},      // one
                                         {"deepseek-v3", 4, 1, 1, 4},   // one vector for all heads
                                         {"bloom-560m", 2, 1, 1, 2},    // a slope of each head's own
                                         {"gpt-oss-20b", 16, 1, 8, 2},  // sinks
                                         {"qwen3-next-80b-a3b", 4, 1, 2, 2},
                                         {"falcon-mamba-7b", 16, 1, 16, 1},  // states alone
                                         {"paligemma-3b", 4, 1, 4, 1}}) {    // tokens that look ahead
    const ModelFacts facts = model_facts(preset_config(c.preset));
    const TokenSharers sharers = token_sharers(facts.sharing, c.ranks, c.tensor);
    EXPECT_EQ(std::pair(sharers.heads, sharers.groups), std::pair(c.heads, c.groups)) << c.preset << ", " << c.ranks;
    Combination wanted = plain();
    wanted.model = &facts, wanted.tokens = c.ranks;
    if (c.tensor == 1) EXPECT_EQ(told(wanted), "") << c.preset;
  }
  const auto refused = [](const char* preset, int64_t ranks) {
    const ModelFacts facts = model_facts(preset_config(preset));
    Combination wanted = plain();
    wanted.model = &facts, wanted.model_name = "toy-model", wanted.tokens = ranks;
    return told(wanted);
  };
  EXPECT_TRUE(tells(refused("paligemma-3b", 16), "look ahead), and toy-model has 8: give that many at most"));
  EXPECT_TRUE(tells(refused("deepseek-v3.2", 2), "each of their tokens chooses those that it looks at"));
  EXPECT_TRUE(tells(refused("deepseek-v4-flash", 2), "keys that several tokens share"));
}

TEST(Rules, KindsOfAdaptersDecide) {
  Combination wanted = plain();
  wanted.tuner = "adalora", wanted.zero = 2;
  EXPECT_TRUE(tells(told(wanted), "--tuner_type adalora looks at all ranks of all layers"));
  wanted.tuner = "bone";
  EXPECT_EQ(told(wanted), "");
  wanted.zero = 3;
  EXPECT_TRUE(tells(told(wanted), "--tuner_type bone is held whole by each process: use --deepspeed zero2"));
  wanted.zero = 0, wanted.tokens = 2, wanted.tuner = "longlora";
  EXPECT_TRUE(tells(told(wanted), "over whole rows"));
}

TEST(Rules, AllThatIsWrongIsToldAtOnce) {
  Combination wanted = plain();
  wanted.tensor = 2, wanted.broadcasts = true, wanted.whole_matrices = "--optimizer muon";
  EXPECT_EQ(refusals(wanted).size(), 2u) << told(wanted);
  EXPECT_THROW(require_possible(wanted), Error);
}

// Every registered algorithm and kind of weights is asked: none is left without an answer.
TEST(Rules, TablesCoverWhatIsRegistered) {
  const auto algorithms = algorithm_abilities(nullptr);
  EXPECT_EQ(algorithms.size(), (Registry<AlgorithmInfo>::of().all().size() + 1) * 6);
  const std::string text = abilities_text("algorithm", algorithms);
  for (const auto& [name, info] : Registry<AlgorithmInfo>::of().all()) EXPECT_TRUE(tells(text, name)) << name;
  EXPECT_FALSE(weight_abilities(nullptr).empty());
}

TEST(Rules, AlikeReasonsAreToldOnce) {
  const auto with = [](const char* what) {
    return Ability{
        what, "tensor", std::string("rlhf --rlhf_type ") + what, "--tensor_model_parallel_size 2",
        std::string("--tensor_model_parallel_size is not available for --rlhf_type ") + what + ", which draws"};
  };
  const std::string text = abilities_text("algorithm", {with("toy"), with("other")});
  EXPECT_TRUE(tells(text, "(1) the flag is not available for this, which draws")) << text;
  EXPECT_FALSE(tells(text, "(2)")) << text;
}

// `apus abilities` beside it: docs/abilities.md is made anew by  apus abilities  between its two fences.
TEST(Rules, ThePageHoldsTheTables) {
  const std::string page = read_file(test::source_dir() / "docs/abilities.md");
  EXPECT_TRUE(tells(page, abilities_text("algorithm, LoRA", algorithm_abilities(nullptr))));
  EXPECT_TRUE(tells(page, abilities_text("weights, apus sft", weight_abilities(nullptr))));
  EXPECT_TRUE(tells(page, abilities_text("family, apus sft", family_abilities())));
}

}  // namespace
}  // namespace apus
