// SPDX-License-Identifier: Apache-2.0
// apus plan: parameters and bytes by hand, the rows that others measured, what is suggested, what is searched.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/plan_spec.h"
#include "models/spec/presets.h"

namespace apus {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

PlanSpec spec_of(const std::string& preset, bool lora, const std::string& device, int devices = 1, int zero = 0) {
  PlanSpec s;
  s.title = preset, s.model = model_facts(preset_config(preset)), s.device = device_facts(device);
  s.tuning.lora = lora;
  s.rows = 1, s.row_tokens = 2048;
  s.train.tokens = 2048, s.train.element = 2, s.train.accumulation = 16, s.train.recompute.layers = s.model.layers;
  s.train.devices = devices, s.train.zero = zero;
  return s;
}

TEST(Plan, CountsParametersOfKnownModels) {
  // From the model cards.
  const std::vector<std::pair<std::string, double>> cards = {
      {"qwen2.5-0.5b", 0.494e9}, {"qwen2.5-7b", 7.616e9}, {"qwen2.5-14b", 14.77e9},     {"qwen2.5-32b", 32.76e9},
      {"qwen2.5-72b", 72.7e9},   {"qwen3-8b", 8.19e9},    {"qwen3-32b", 32.76e9},       {"qwen3-30b-a3b", 30.53e9},
      {"llama3.1-8b", 8.03e9},   {"llama3-8b", 8.03e9},   {"qwen1.5-moe-a2.7b", 14.3e9}};
  for (const auto& [name, parameters] : cards)
    EXPECT_NEAR(static_cast<double>(model_facts(preset_config(name)).parameters()) / parameters, 1, 0.005) << name;
  EXPECT_NEAR(static_cast<double>(model_facts(preset_config("qwen3-30b-a3b")).active_parameters()), 3.35e9, 0.05e9);
  EXPECT_EQ(model_facts(preset_config("llama3.2-11b-vision")).parameters(), 10670220835);
}

TEST(Plan, LoraFactorsByHand) {
  const ModelFacts m = model_facts(preset_config("qwen2.5-7b"));
  const TuningFacts all = tuning_facts(m, {});
  const double of_layer = 8.0 * (2 * (3584 + 3584) + 2 * (3584 + 512) + 3 * (3584 + 18944));
  EXPECT_EQ(all.adapter, 28 * of_layer);
  EXPECT_EQ(all.trained, 0);
  const TuningFacts two =
      tuning_facts(m, {.rank = 4, .target_modules = {"q_proj", "v_proj"}, .modules_to_save = {"lm_head"}});
  EXPECT_EQ(two.adapter, 28 * 4.0 * ((3584 + 3584) + (3584 + 512)));
  EXPECT_EQ(two.trained, 152064.0 * 3584);
  EXPECT_TRUE(two.head_trained);
  EXPECT_FALSE(two.embedding_trained);
  EXPECT_THROW(tuning_facts(m, {.target_modules = {"nothing"}}), Error);
}

TEST(Plan, FrozenParametersNeedNoState) {
  const ModelFacts m = model_facts(preset_config("tiny"));
  const TuningFacts all = tuning_facts(m, {.lora = false});
  EXPECT_EQ(all.trained, static_cast<double>(m.parameters()));
  EXPECT_TRUE(all.head_trained && all.embedding_trained);  // tied
  const TuningFacts last = tuning_facts(m, {.lora = false, .freeze = {"model."}, .train = {"model.layers.3."}});
  EXPECT_EQ(last.trained, last.layers[3].elements);
  EXPECT_EQ(last.layers[0].trained, 0);
  TrainSpec f32{.tokens = 8, .element = 4};
  EXPECT_EQ(optimizer_state_bytes(last, f32), 8 * last.trained);
  TrainSpec bf16{.tokens = 8, .element = 2};
  EXPECT_EQ(optimizer_state_bytes(last, bf16), 12 * last.trained);
  bf16.optimizer = {.kind = "adamw_8bit", .master = false};
  EXPECT_NEAR(optimizer_state_bytes(last, bf16), 2 * last.trained, 0.02 * 2 * last.trained);
  bf16.optimizer = {.kind = "sgd", .master = false};
  EXPECT_EQ(optimizer_state_bytes(last, bf16), 0);
}

// Of a matrix [o, i], the longer side first: two moments of r numbers for each of the longer one, and r vectors of the
// shorter. The rest takes AdamW's 8 bytes.
TEST(Plan, GradientsInFewerDimensionsNeedLessState) {
  const ModelFacts m = model_facts(preset_config("qwen2.5-7b"));
  const TuningFacts layers = tuning_facts(m, {.lora = false, .freeze_ratio = 1, .train = {"model.layers."}});
  constexpr double h = 3584, kv = 512, f = 18944, r = 64;
  const double matrices = 28 * (2 * h * h + 2 * kv * h + 3 * f * h), others = layers.trained - matrices;
  const double states = 28 * r * (2 * (8 * h + 4 * h) + 2 * (8 * h + 4 * kv) + 3 * (8 * f + 4 * h));
  TrainSpec spec{.tokens = 8, .element = 2};
  for (const char* kind : {"galore_adamw", "apollo_adamw"}) {
    spec.optimizer = {.kind = kind, .master = false, .arguments = {{"rank", "64"}}};
    EXPECT_NEAR(optimizer_state_bytes(layers, spec), states + 8 * others, 1) << kind;
  }
  spec.optimizer = {.kind = "schedule_free_sgd", .master = false};
  EXPECT_EQ(optimizer_state_bytes(layers, spec), 4 * layers.trained);
  // LISA: two layers at a time, beside all else.
  const TuningFacts all = tuning_facts(m, {.lora = false}), two = tuning_facts(m, {.lora = false, .trained_layers = 2});
  EXPECT_NEAR(two.trained, all.trained - 26 * all.layers[0].trained, 1);
}

// The table of ms-swift's guide: LoRA on 910B3, GiB a card. docs/plan.md says why the last row is not explained.
TEST(Plan, MeasuredRowsOfThePythonStack) {
  struct Row {
    const char* model;
    int devices, zero;
    double measured;
    bool explained;
  };
  const std::vector<Row> rows = {
      {"qwen2.5-7b", 1, 0, 28, true},  {"qwen2.5-7b", 4, 0, 22, true},  {"qwen2.5-7b", 4, 2, 28, true},
      {"qwen2.5-7b", 4, 3, 22, true},  {"qwen2.5-7b", 8, 0, 22, true},  {"qwen2.5-14b", 1, 0, 45, true},
      {"qwen2.5-14b", 8, 0, 51, true}, {"qwen2.5-14b", 8, 2, 49, true}, {"qwen2.5-14b", 8, 3, 31, false}};
  for (const Row& row : rows) {
    PlanSpec s = spec_of(row.model, true, "910B3", row.devices, row.zero);
    s.stack = "ms-swift";
    const double gib = bare_plan(s).use.peak / kGib;
    RecordProperty(str(row.model, "-", row.devices, "-zero", row.zero), str(gib));
    if (row.explained)
      EXPECT_NEAR(gib / row.measured, 1, 0.2)
          << row.model << " on " << row.devices << ", zero" << row.zero << ": " << gib;
    else
      EXPECT_LT(gib, row.measured) << "the row can be explained now: say so in docs/plan.md";
  }
}

TEST(Plan, WhatFitsAndWhatMakesItFit) {
  const Plan lora = make_plan(spec_of("qwen2.5-7b", true, "910B3"));
  EXPECT_TRUE(lora.fits);
  EXPECT_TRUE(lora.changes.empty());
  EXPECT_GT(lora.use.peak, 15.2e9);
  EXPECT_LT(lora.use.peak, 22 * kGib);

  const Plan full = make_plan(spec_of("qwen2.5-32b", false, "910B3", 8));
  EXPECT_FALSE(full.fits);
  ASSERT_FALSE(full.changes.empty());
  EXPECT_LE(full.changed_peak, full.capacity);
  std::string flags;
  for (const Change& c : full.changes) flags += c.flags + " ";
  EXPECT_NE(flags.find("--deepspeed zero3"), std::string::npos) << flags;
  // What is learnt stays, where anything else will do.
  EXPECT_EQ(flags.find("--tuner_type"), std::string::npos) << flags;

  PlanSpec kept = spec_of("qwen2.5-7b", true, "A100-40G");
  kept.train.recompute.layers = 0, kept.rows = 4, kept.train.tokens = 4 * 2048;
  const Plan recompute = make_plan(kept);
  ASSERT_FALSE(recompute.fits);
  ASSERT_EQ(recompute.changes.size(), 1u);
  EXPECT_EQ(recompute.changes[0].flags, "--gradient_checkpointing true");

  PlanSpec hopeless = spec_of("qwen2.5-72b", true, "4090");
  hopeless.train.devices = 1;
  for (const Change& c : make_plan(hopeless).changes) EXPECT_EQ(c.flags.find("--tuner_type"), std::string::npos);
}

TEST(Plan, EveryKnobLowersThePeak) {
  const auto peak = [](auto change) {
    PlanSpec s = spec_of("qwen2.5-1.5b", false, "A100");
    s.rows = 4, s.train.recompute.layers = 0, s.train.tokens = 4 * 2048;
    change(s);
    return bare_plan(s).use.peak;
  };
  const double base = peak([](PlanSpec&) {});
  EXPECT_LT(peak([](PlanSpec& s) { s.train.recompute.layers = s.model.layers; }), base);
  EXPECT_LT(peak([](PlanSpec& s) { s.train.tokens = 2048; }), base);
  EXPECT_LT(peak([](PlanSpec& s) { s.train.optimizer.kind = "adamw_8bit"; }), base);
  EXPECT_LT(peak([](PlanSpec& s) { s.train.optimizer.master = false; }), base);
  EXPECT_LT(peak([](PlanSpec& s) { s.tuning = {}; }), base);
  double before = peak([](PlanSpec& s) { s.train.devices = 8; });
  for (const int zero : {1, 2, 3}) {
    const double now = peak([&](PlanSpec& s) { s.train.devices = 8, s.train.zero = zero; });
    EXPECT_LT(now, before) << "zero" << zero;
    before = now;
  }
  EXPECT_GT(peak([](PlanSpec& s) { s.tuning = {}, s.tuning.dora = true; }), peak([](PlanSpec& s) { s.tuning = {}; }));
  EXPECT_GT(peak([](PlanSpec& s) { s.train.element = 4; }), base);
  EXPECT_GT(peak([](PlanSpec& s) { s.train.frozen_copies = 1; }), base);
  EXPECT_NEAR(peak([](PlanSpec& s) { s.train.frozen_elements = 1e9; }) - base, 2e9, 1e8) << "in bf16";
  // A critic has weights, gradients and a state of its own; as an adapter the trunk is there already.
  const double critic = peak([](PlanSpec& s) { s.train.trained_copies = 1; });
  EXPECT_GT(critic, 1.8 * base);
  EXPECT_LT(critic, 2.2 * base);
  const auto adapted = [&](bool shared) {
    return peak([&](PlanSpec& s) { s.tuning = {}, s.train.trained_copies = 1, s.train.copies_share_trunk = shared; });
  };
  EXPECT_LT(adapted(true), adapted(false));
}

// Only silu and the product with up are one operator: gelu's result and its input are kept both, relu's result alone.
TEST(Plan, WhatADeviceHoldsOfASharedModel) {
  const ModelFacts whole = model_facts(preset_config("qwen3-30b-a3b"));
  const ModelFacts part = cut_model(whole, {.tensor = 2, .experts = 4, .stages = {}});
  const auto count = [](const ModelFacts& m, bool stacked) {
    int64_t sum = 0;
    for (const ParamFacts& p : m.params) sum += p.stacked == stacked ? p.numel() : 0;
    return sum;
  };
  EXPECT_EQ(count(part, true) * 8, count(whole, true));
  // Norms and routers are whole on both.
  const int64_t uncut = 48 * (2 * 2048 + 2 * 128 + 128 * 2048) + 2048;
  EXPECT_EQ((count(part, false) - uncut) * 2, count(whole, false) - uncut);
  EXPECT_EQ(part.heads, 16);
  EXPECT_EQ(part.kv_heads, 2);
  // More devices than key-value heads: each has one.
  EXPECT_EQ(cut_model(whole, {.tensor = 8, .experts = 1, .stages = {}}).kv_heads, 1);

  for (const char* name : {"tiny", "qwen2.5-7b"}) {
    const ModelFacts m = model_facts(preset_config(name));
    const ModelShare stages{.tensor = 1, .experts = 1, .stages = {1, m.layers - 1}};
    const TuningFacts first = tuning_facts(m, {.lora = false}, stage_of(stages, 0, m.tied)),
                      last = tuning_facts(m, {.lora = false}, stage_of(stages, 1, m.tied));
    EXPECT_EQ(first.layers.size(), 1);
    EXPECT_EQ(std::ssize(last.layers), m.layers - 1);
    const auto table = static_cast<double>(m.tied ? m.vocab * m.hidden : 0);  // on both
    EXPECT_EQ(first.elements + last.elements, static_cast<double>(m.parameters()) + table) << name;
    EXPECT_TRUE(first.embedding_trained && !first.head_trained && last.head_trained && !last.embedding_trained) << name;
  }
}

TEST(Plan, SharingAModelLowersThePeak) {
  const auto peak = [](const std::string& preset, ModelShare share, int zero = 0) {
    PlanSpec s = spec_of(preset, /*lora=*/false, "A100-80G", 8, zero);
    s.share = std::move(share);
    return make_plan(s).use;
  };
  const double all = peak("qwen2.5-7b", {}).peak;
  const MemoryUse halves = peak("qwen2.5-7b", {.tensor = 2, .experts = 1, .stages = {}}),
                  stages = peak("qwen2.5-7b", {.tensor = 1, .experts = 1, .stages = {14, 14}});
  EXPECT_LT(halves.peak, 0.6 * all);
  EXPECT_LT(stages.peak, 0.65 * all);
  EXPECT_NE(stages.when.find("of stage"), std::string::npos) << stages.when;
  // Pieces in turn keep more.
  EXPECT_GT(peak("qwen2.5-7b", {.tensor = 1, .experts = 1, .stages = {14, 14}, .pieces = 2}).peak, stages.peak);
  const double without = peak("qwen3-30b-a3b", {}, 1).peak;
  EXPECT_LT(peak("qwen3-30b-a3b", {.tensor = 1, .experts = 8, .stages = {}}, 1).peak, 0.5 * without);
}

// What devices share out between matrices: the less of it there is the more of them do so. The tally ends at nothing,
// whatever is kept and trained.
TEST(Plan, TokensBetweenMatricesLowerWhatIsKept) {
  for (const char* preset : {"qwen2.5-7b", "qwen3-30b-a3b"})
    for (const bool lora : {false, true})
      for (const RecomputeFacts& again :
           {RecomputeFacts{}, RecomputeFacts{.selective = true}, RecomputeFacts{.layers = 99}}) {
        PlanSpec s = spec_of(preset, lora, "A100-80G", 8, 1);
        s.share = {.tensor = 4, .experts = 1, .stages = {}}, s.train.recompute = again;
        s.row_tokens = 16384, s.count_tokens();
        const auto kept = [&](int64_t sharers) {
          s.train.residual_sharers = sharers;
          return of(bare_plan(s).use.at_peak, Holds::Activations);
        };
        const double whole = kept(1), quarters = kept(4);
        EXPECT_LT(quarters, 0.9 * whole) << preset << (lora ? ", lora" : "") << again.layers << again.selective;
        EXPECT_GT(quarters, 0.25 * whole);
      }
}

TEST(Plan, AnswersWantTheirCacheAndWholeWeights) {
  PlanSpec s = spec_of("qwen2.5-7b", /*lora=*/true, "A100-80G", 8, 3);
  const double weights = static_cast<double>(s.model.parameters()) * s.train.element, trains = bare_plan(s).use.peak;
  s.train.rolls_out = true;
  const MemoryUse alone = bare_plan(s).use;
  EXPECT_EQ(alone.when, "rolling out answers");
  EXPECT_GT(alone.peak, 1.12 * weights) << "its slices, and all of them";
  s.train.all_read_answers = true, s.train.frozen_elements = 1e9, s.train.cache_bytes = 3e9;
  EXPECT_NEAR(bare_plan(s).use.peak - alone.peak, 5e9 + 2e9 / 8, 1e8);
  s.train.zero = 0, s.train.frozen_elements = 0, s.train.cache_bytes = 1;
  s.train.rolls_out = false;
  const double plain = bare_plan(s).use.peak;
  s.train.rolls_out = true;
  EXPECT_EQ(bare_plan(s).use.peak, plain) << "they are whole already";
  EXPECT_GT(plain, trains);
}

TEST(Plan, ActivationsThatAreTensorsOfTheirOwn) {
  PlanSpec s = spec_of("qwen2.5-1.5b", false, "A100");
  s.train.recompute.layers = 0;
  const auto peak = [&](Activation act) { return s.model.act = act, bare_plan(s).use.peak; };
  const double silu = peak(Activation::Silu),
               tensors = static_cast<double>(s.model.layers * s.model.ffn) * s.train.tokens * s.train.element;
  EXPECT_NEAR((peak(Activation::Gelu) - silu) / tensors, 1, 0.1);
  EXPECT_NEAR((peak(Activation::GeluTanh) - silu) / tensors, 1, 0.1);
  EXPECT_NEAR((peak(Activation::Relu) - silu) / tensors, 0, 0.1);
}

TEST(Plan, SearchListsWhatFitsFastestFirst) {
  const PlanSpec s = spec_of("qwen3-8b", false, "H200", 8);
  auto all = search_strategies(s);
  fastest_first(all);
  ASSERT_GT(all.size(), 3u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_LE(all[i].peak, s.device.memory);
    EXPECT_EQ(all[i].rows * all[i].accumulation, 16);
    if (i > 0) {
      EXPECT_LE(all[i].tokens_per_second, all[i - 1].tokens_per_second + 1);
    }
  }
  // No device computes faster than its peak: 6 flops a parameter and token at least.
  EXPECT_LT(all[0].tokens_per_second, 8 * s.device.bf16 / (6 * 7.5e9));
  EXPECT_TRUE(search_strategies(spec_of("qwen2.5-72b", false, "4090")).empty());
}

TEST(Plan, SearchTriesMeshes) {
  const PlanSpec dense = spec_of("qwen2.5-32b", false, "910B3", 8);
  EXPECT_TRUE(search_strategies(dense).empty());
  const auto tried = meshes_to_try(dense), others = meshes_to_try(dense, "adamw_8bit");
  const auto has = [&](const std::vector<std::string>& flags) {
    return std::find(tried.begin(), tried.end(), flags) != tried.end();
  };
  EXPECT_TRUE(
      has({"--tensor_model_parallel_size", "4", "--sequence_parallel", "true", "--pipeline_model_parallel_size", "2"}));
  EXPECT_EQ(others.size(), tried.size() + 4) << "without a mesh, too";
  EXPECT_FALSE(has({}));  // as it is
  for (const auto& flags : tried)
    EXPECT_EQ(std::count(flags.begin(), flags.end(), "--expert_model_parallel_size"), 0) << "there are no experts";
  PlanSpec narrow = dense;
  narrow.train.optimizer.kind = "adamw_8bit", narrow.train.zero = 3;
  const auto found = search_strategies(narrow, {"--deepspeed", "zero3", "--optim", "adamw_8bit"});
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found[0].flags.find("--gradient_checkpointing true"), std::string::npos);
  EXPECT_TRUE(found[0].flags.ends_with(" --deepspeed zero3 --optim adamw_8bit"));
}

// What waits for others, and stages that wait for work.
TEST(Plan, MeshesCostTime) {
  const auto speed = [](const char* preset, int64_t tensor, int64_t stages, int64_t experts, int64_t accumulation,
                        int64_t pieces = 1) {
    PlanSpec s = spec_of(preset, true, "H200", 8);
    s.train.accumulation = accumulation;
    s.share = {.tensor = tensor, .experts = experts, .stages = {}, .pieces = pieces};
    for (int64_t i = 0; stages > 1 && i < stages; ++i) s.share.stages.push_back(s.model.layers / stages);
    return estimated_speed(s, tuning_facts(s.model, s.tuning)).tokens_per_second;
  };
  const double alone = speed("qwen2.5-7b", 1, 1, 1, 16);
  EXPECT_LT(speed("qwen2.5-7b", 4, 1, 1, 16), 0.9 * alone);
  EXPECT_LT(speed("qwen2.5-7b", 8, 1, 1, 16), speed("qwen2.5-7b", 2, 1, 1, 16));
  const double hurried = speed("qwen2.5-7b", 1, 4, 1, 4), patient = speed("qwen2.5-7b", 1, 4, 1, 64);
  EXPECT_NEAR(patient / hurried, 1.75 / (1 + 3.0 / 64), 0.05);
  EXPECT_NEAR(speed("qwen2.5-7b", 1, 4, 1, 4, 3) / hurried, 1.75 / 1.25, 0.05);
  EXPECT_LT(speed("qwen3-30b-a3b", 1, 1, 8, 16), 0.9 * speed("qwen3-30b-a3b", 1, 1, 1, 16));
}

TEST(Plan, ShortRowsAreFasterManyAtATime) {
  PlanSpec s = spec_of("qwen2.5-0.5b", true, "H200");
  s.row_tokens = 76, s.count_tokens();
  double one = 0, sixteen = 0;
  for (const Strategy& x : search_strategies(s)) {
    if (!x.recompute || x.selective) continue;
    if (x.rows == 1) one = x.tokens_per_second;
    if (x.rows == 16) sixteen = x.tokens_per_second;
  }
  EXPECT_GT(sixteen, 1.2 * one);
  EXPECT_GT(one, 0);
  const DeviceFacts d = device_facts("H200");
  EXPECT_EQ(d.share_of_peak(2048), d.efficiency);
  EXPECT_EQ(d.share_of_peak(1e6), d.efficiency);
  EXPECT_LT(d.share_of_peak(64), 0.5 * d.efficiency);
}

TEST(Plan, SaysWhatWasMeasuredAndWhatIsPublished) {
  EXPECT_NE(plan_text(make_plan(spec_of("qwen2.5-0.5b", true, "B200"))).find("nothing of Apus was measured"),
            std::string::npos);
  EXPECT_NE(plan_text(make_plan(spec_of("qwen2.5-0.5b", true, "cpu"))).find("Measured on this kind of device: memory"),
            std::string::npos);
  for (const char* name : {"B200", "B300", "RTX 5090", "NVIDIA GeForce RTX 4090", "L4", "L40S", "Tesla T4"})
    EXPECT_GT(device_facts(name).memory_speed, 0) << name;
  EXPECT_EQ(device_facts("L40S").name, "L40S");
  for (const char* name : {"MI300X", "AMD Instinct MI300X", "TPUv5e", "Gaudi3"}) {
    try {
      device_facts(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("which Apus does not run on"), std::string::npos) << error.what();
    }
  }
}

TEST(Plan, CacheOfKeysAndValues) {
  PlanSpec s = spec_of("qwen2.5-7b", true, "A100-40G");
  s.inference = true, s.infer.context = 8192;
  const Plan plan = make_plan(s);
  EXPECT_EQ(plan.cache_token_bytes, 2 * 2 * 28 * 4 * 128.0);
  EXPECT_TRUE(plan.fits);
  EXPECT_NEAR(plan.use.peak, 0.9 * s.device.memory, 0.06 * s.device.memory);  // the cache takes what it may
  EXPECT_EQ(plan.full_sequences,
            static_cast<int64_t>(of(plan.use.at_peak, Holds::Cache) / (8192 * plan.cache_token_bytes)));
  s.infer.context = 1 << 20, s.device = device_facts("4090");
  EXPECT_FALSE(make_plan(s).fits);
  EXPECT_FALSE(make_plan(s).changes.empty());
}

TEST(Plan, LayersOverSeveralDevices) {
  PlanSpec s = spec_of("qwen2.5-72b", true, "A100");
  s.inference = true, s.infer.context = 4096;
  const Plan one = make_plan(s);
  ASSERT_FALSE(one.fits);
  ASSERT_EQ(one.changes.size(), 1u);
  EXPECT_EQ(one.changes[0].flags, "--device_map auto");
  s.train.devices = 4;
  const Plan four = make_plan(s);
  EXPECT_TRUE(four.fits);
  const double weights = of(four.use.at_peak, Holds::Weights), all = of(one.use.at_peak, Holds::Weights);
  EXPECT_GE(weights, all / 4);
  EXPECT_LT(weights, all / 4 * 1.05);  // 80 layers, an embedding and a head: nearly even
  EXPECT_GT(four.full_sequences, one.full_sequences);
  EXPECT_EQ(four.speed.tokens_per_second, one.speed.tokens_per_second);  // they work one after the other
  EXPECT_NE(plan_text(four).find("on the fullest device"), std::string::npos);
  EXPECT_EQ(plan_json(four).at("strategy"), "layers over devices");
  s.train.devices = 500;  // no more than one part each
  EXPECT_TRUE(make_plan(s).fits);
}

TEST(Plan, WeightsThatAreHeldQuantised) {
  PlanSpec s = spec_of("qwen2.5-7b", true, "910B3");
  const double whole = make_plan(s).use.at_peak[static_cast<size_t>(Holds::Weights)];
  quant::Wish wish;
  wish.method = "bnb", wish.bits = 4;
  hold_quantised(s, preset_config("qwen2.5-7b"), wish);
  EXPECT_EQ(s.train.held_bits, 4.25);
  // 6.525e9 of the weights are in linear layers; embedding, head, norms and biases stay in two bytes.
  const double held = make_plan(s).use.at_peak[static_cast<size_t>(Holds::Weights)];
  EXPECT_NEAR(whole - held, 6.525e9 * (2 - 4.25 / 8), 1e7);
  EXPECT_NE(plan_text(make_plan(s)).find("in 4.25 bits"), std::string::npos);
  Json config = preset_config("qwen2.5-7b");
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}};
  hold_quantised(s, config, {});
  EXPECT_EQ(s.train.held_bits, 5);
}

TEST(Plan, QuantisationsThatAreNotReadAreRefused) {
  Json config = preset_config("qwen2.5-7b");
  EXPECT_NO_THROW(model_facts(config));
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  EXPECT_NO_THROW(model_facts(config));
  config["quantization_config"] = {{"quant_method", "quip"}};
  EXPECT_THROW(model_facts(config), Error);
}

TEST(Plan, TextAndJsonSayTheSame) {
  const Plan plan = make_plan(spec_of("qwen2.5-7b", true, "910B3"));
  const Json json = plan_json(plan);
  EXPECT_EQ(json.at("parameters"), 7615616512);
  EXPECT_EQ(json.at("fits"), true);
  int64_t total = 0;
  for (const auto& [name, bytes] : json.at("bytes").items()) total += bytes.get<int64_t>();
  EXPECT_NEAR(static_cast<double>(total), json.at("peak_bytes").get<double>(), 16);
  EXPECT_NE(plan_text(plan).find("It fits"), std::string::npos);
}

TEST(Plan, OfTheDevicesOfThisMachine) {
  const auto machine = [](const std::string& kind, const std::string& name, int64_t gib) {
    Status s;
    s.name = name, s.memory_total = gib << 30;
    return std::vector<DeviceGroup>{{kind, "", {s, s}, ""}, {"cpu", "", {Status()}, ""}};
  };
  const auto npus = machine("npu", "910B4", 32), gpus = machine("cuda", "NVIDIA A100-SXM4-40GB", 40);
  EXPECT_EQ(device_facts("auto", npus).bf16, device_facts("910B4").bf16);
  EXPECT_EQ(device_facts("npu:1", npus).memory, 32 * kGib);
  EXPECT_TRUE(device_facts("cpu", npus).host);
  EXPECT_EQ(device_facts("auto", gpus).memory_speed, device_facts("A100-40G").memory_speed);
  EXPECT_EQ(device_facts("cuda", machine("cuda", "NVIDIA A100 80GB PCIe", 80)).memory_speed,
            device_facts("A100-80G").memory_speed);
  EXPECT_EQ(device_facts("auto", machine("cuda", "NVIDIA H20", 96)).bf16, device_facts("H20").bf16);
  EXPECT_EQ(device_facts("auto", machine("npu", "Ascend910", 64)).node, device_facts("A3").node);
  const DeviceFacts strange = device_facts("auto", machine("cuda", "NVIDIA T1000", 8));
  EXPECT_EQ(strange.memory, 8 * kGib);
  EXPECT_NE(strange.assumed.find("T1000"), std::string::npos);
  EXPECT_TRUE(device_facts("auto", {}).host);
}

TEST(Plan, UnknownNamesAreNamed) {
  EXPECT_THROW(device_facts("910B9000"), Error);
  EXPECT_EQ(device_facts("a100_80g").name, "A100-80G");
  EXPECT_EQ(device_facts("npu:3", {}).name, "910B3");
  EXPECT_FALSE(device_facts("npu:3", {}).assumed.empty());
  EXPECT_EQ(device_facts("Ascend910_9382").name, "910C");
  EXPECT_EQ(device_facts("NVIDIA GeForce RTX 4090").name, "RTX4090");
  EXPECT_TRUE(device_facts("cpu").host);
  for (const std::string& name : device_names()) EXPECT_GT(device_facts(name).memory, 1e9) << name;
  EXPECT_THROW(model_facts(Json{{"model_type", "rwkv"}}), Error);
  EXPECT_THROW(model_facts(Json::array()), Error);
}

}  // namespace
}  // namespace apus
