// SPDX-License-Identifier: Apache-2.0
// A loss, an optimizer, a family of models and a format of weights that only this file knows: they are in help, plan,
// abilities, tables and Megatron's door, and no other file names them. A program of its own, as they would stand in
// everybody's tables.
#include <gtest/gtest.h>

#include <cctype>

#include "abilities/combination.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/megatron.h"
#include "cli/plan.h"
#include "cli/train.h"
#include "models/spec/family.h"
#include "models/spec/presets.h"
#include "models/spec/read_decoder.h"
#include "quant/format.h"
#include "quant/scheme.h"
#include "train/options/optimizer_info.h"

namespace apus {
namespace {

struct ToyOptions {
  double sharpness = 0.25;
  void fields(OptionTable& v) { v("toy_sharpness", sharpness, "how sharp the toy is").above(0).noted(); }
};
const RegisterAlgorithmOptions<ToyOptions> toy_loss("toy", {.summary = "pairs of toys",
                                                            .command = "rlhf",
                                                            .examples = {"rlhf --rlhf_type toy --model DIR"},
                                                            .row_texts = 2});

const RegisterOptimizerInfo toy_optimizer("toy_descent",
                                          {.summary = "a toy", .names = {"toy_32bit"}, .of_matrices = 100});

DecoderSpec read_toy(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 1024});
  spec.attention.sinks = true;
  return spec;
}
const std::vector<Preset> presets = {{"toy-1b", 2048, 16, 16, 8, 128, 8192, 32000, 1024, 1e4, true}};
const RegisterFamily toy_family(
    "toy_family", {.title = "Toys", .architecture = "ToyForCausalLM", .read = read_toy, .presets = presets});

// A byte a weight, in units of a 64th.
class Toys final : public quant::Matrix {
 public:
  Toys(const quant::StoredLayer& layer, quant::Shape shape)
      : Matrix(shape), codes_(layer.need("toys", {DiskType::I8}, shape.count())) {}
  const char* format() const override { return "toys"; }
  int64_t bytes() const override { return codes_.bytes; }
  void dequantise(int64_t row, int64_t count, float* out) const override {
    for (int64_t i = 0; i < count * shape().columns; ++i)
      out[i] = static_cast<float>(codes_.at<int8_t>(row * shape().columns + i)) / 64;
  }

 private:
  StoredTensor codes_;
};

quant::Pieces made_toys(std::span<const float> weight, quant::Shape shape, const Json&) {
  std::vector<int8_t> codes;
  for (const float w : weight) codes.push_back(static_cast<int8_t>(w * 64));
  quant::Pieces out;
  out["toys"] = stored(DiskType::I8, {shape.rows, shape.columns}, std::move(codes));
  return out;
}

const quant::RegisterFormat toy_format(
    "toys", {.methods = {"toyq"},
             .read = "toyq",
             .marks = {"toys"},
             .holds = [](const quant::Pieces& pieces, const Json&) { return pieces.count("toys") > 0; },
             .open = [](const quant::StoredLayer& layer, quant::Shape shape,
                        const Json&) -> std::unique_ptr<quant::Matrix> { return std::make_unique<Toys>(layer, shape); },
             .bits = [](const Json&) { return 8.0; },
             .made = {.method = "toyq",
                      .bits = {8},
                      .settings = [](const quant::Wish&, const Json&, const Json&) -> Json {
                        return {{"quant_method", "toyq"}};
                      },
                      .quantise = made_toys}});

// Wherever lines end in the text.
bool tells(const std::string& text, const std::string& part) {
  std::string flat;
  for (const char c : text)
    if (!std::isspace(static_cast<unsigned char>(c)))
      flat += c;
    else if (!flat.empty() && flat.back() != ' ')
      flat += ' ';
  return flat.find(part) != std::string::npos;
}

Plan planned(std::vector<std::string> words) {
  words.insert(words.end(), {"--device", "H200"});
  PlanOptions options(*find_command("rlhf")->make(words)->planned);
  OptionTable table = OptionTable::of(options);
  table.parse(words);
  options.resolve(table);
  return make_plan(plan_spec(options));
}

TEST(AddedOne, IsInTheHelp) {
  const std::string all = command_help(*find_command("rlhf"), "apus", 100);
  EXPECT_TRUE(tells(all, "--rlhf_type toy") && tells(all, "pairs of toys")) << all;
  const std::string own = command_help(*find_command("rlhf"), "apus", 100, {"--rlhf_type", "toy"}, "all");
  EXPECT_TRUE(tells(own, "--toy_sharpness") && tells(own, "toy_descent: a toy")) << own;
  EXPECT_TRUE(tells(family_table(), "Toys"));
  EXPECT_EQ(preset_config("toy-1b").at("model_type"), "toy_family");
}

TEST(AddedOne, IsPlanned) {
  const Plan plain = planned({"--rlhf_type", "toy", "--model", "toy-1b"}),
             full = planned({"--rlhf_type", "toy", "--model", "toy-1b", "--tuner_type", "full"}),
             heavy =
                 planned({"--rlhf_type", "toy", "--model", "toy-1b", "--tuner_type", "full", "--optim", "toy_32bit"});
  EXPECT_EQ(plain.spec.command, "rlhf toy");
  EXPECT_GT(plain.use.peak, 0);
  const double weights = static_cast<double>(full.spec.model.matrix_elements());
  EXPECT_GT(heavy.use.peak - full.use.peak, 80 * weights) << "100 bytes of each weight instead of 8";
}

TEST(AddedOne, IsInTheAbilitiesAndOnAMesh) {
  const std::string table = abilities_text("algorithm", algorithm_abilities(nullptr));
  EXPECT_TRUE(tells(table, "toy")) << table;
  const std::string families = abilities_text("family", family_abilities());
  EXPECT_TRUE(tells(families, "toy_family")) << families;
  const std::vector<std::string> words = {"--rlhf_type", "toy", "--model", "qwen3-8b"};
  for (const char* flag : {"--tensor_model_parallel_size", "--pipeline_model_parallel_size"}) {
    std::vector<std::string> cut = words;
    cut.insert(cut.end(), {flag, "2", "--devices", "2"});
    EXPECT_GT(planned(cut).use.peak, 0) << flag;
  }
}

TEST(AddedOne, HoldsWeights) {
  EXPECT_TRUE(tells(command_help(*find_command("export"), "apus", 100, {}, "all"), "toyq"));
  EXPECT_TRUE(tells(command_help(*find_command("sft"), "apus", 100, {}, "all"), "8 (toyq)"));
  const std::vector<float> numbers = {0.5f, -0.25f, 1, 0};
  quant::Wish wish;
  wish.method = "toyq";
  wish.check();
  const quant::StoredLayer layer{"layer", wish.quantise(numbers, {2, 2})};
  const auto scheme = quant::scheme_of({{"quantization_config", wish.config(Json::object(), {})}});
  ASSERT_TRUE(scheme && quant::marks_quantised("toys"));
  std::vector<float> back(4);
  quant::open_weight(*scheme, layer, {2, 2})->dequantise(0, 2, back.data());
  EXPECT_EQ(back, numbers);
  const std::vector<std::string> words = {"--rlhf_type", "toy", "--model", "qwen3-8b"};
  std::vector<std::string> held = words;
  held.insert(held.end(), {"--quant_method", "toyq"});
  const auto plain = planned(words).use.peak, small = planned(held).use.peak;
  EXPECT_LT(small, plain * 0.7) << "a byte a weight instead of two";
}

TEST(AddedOne, PassesMegatronsDoor) {
  const ModelFacts dense = model_facts(preset_config("qwen3-8b"));
  const OwnFlags own = own_flags({"--model", "m", "--rlhf_type", "toy", "--tensor_model_parallel_size", "2"},
                                 {.ranks = 2, .command = "rlhf", .model = &dense});
  EXPECT_NE(std::find(own.arguments.begin(), own.arguments.end(), "toy"), own.arguments.end());
  EXPECT_NE(std::find(own.arguments.begin(), own.arguments.end(), "--tensor_model_parallel_size"), own.arguments.end());
}

}  // namespace
}  // namespace apus
