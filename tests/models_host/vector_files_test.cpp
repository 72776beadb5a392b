// SPDX-License-Identifier: Apache-2.0
// The files of sentence-transformers, in the spellings that are about.
#include "checkpoint/vector_files.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/json.h"
#include "cli/task_options.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

class VectorFiles : public ::testing::Test {
 protected:
  void put(const fs::path& file, const Json& json) const {
    fs::create_directories((folder.path / file).parent_path());
    write_file_atomic(folder.path / file, json.dump());
  }
  void modules(const std::vector<std::pair<const char*, const char*>>& all) const {
    Json list = Json::array();
    for (const auto& [path, type] : all) list.push_back({{"idx", list.size()}, {"path", path}, {"type", type}});
    put("modules.json", list);
  }
  VectorForm form() const { return read_vector_files(folder.path).value(); }
  std::string refused() const {
    return test::refusal(Fault::Model, [&] { read_vector_files(folder.path); });
  }
  const test::Folder folder;
};

constexpr const char *kTransformer = "sentence_transformers.models.Transformer",
                     *kPooling = "sentence_transformers.models.Pooling";

TEST_F(VectorFiles, AreReadAsTheyWereWritten) {
  EXPECT_FALSE(read_vector_files(folder.path));
  for (const Pooling pooling : all_poolings()) {
    write_vector_files(
        folder.path,
        {.pooling = pooling, .width = 8, .prompts = {{"query", "Find: "}, {"document", ""}}, .usual_prompt = "query"});
    EXPECT_EQ(form().pooling, pooling);
    EXPECT_EQ(pooling_named(pooling_name(pooling)), pooling);
    EXPECT_TRUE(form().normalised);
    EXPECT_EQ(form().width, 8);
    EXPECT_EQ(form().prompts.at("query"), "Find: ");
    EXPECT_EQ(form().usual_prompt, "query");
  }
}

TEST_F(VectorFiles, SayThePoolingByAFlagOrByAWord) {
  modules({{"", kTransformer}, {"1_Pooling", kPooling}});
  put("1_Pooling/config.json", {{"word_embedding_dimension", 4}, {"pooling_mode_cls_token", true}});
  EXPECT_EQ(form().pooling, Pooling::First);
  EXPECT_FALSE(form().normalised);  // no module does it
  for (const auto& [word, pooling] : {std::pair{"mean", Pooling::Mean},
                                      {"cls", Pooling::First},
                                      {"lasttoken", Pooling::Last},
                                      {"weightedmean", Pooling::WeightedMean},
                                      {"mean_sqrt_len_tokens", Pooling::MeanSqrt}}) {
    put("1_Pooling/config.json", {{"embedding_dimension", 4}, {"pooling_mode", word}});
    EXPECT_EQ(form().pooling, pooling) << word;
    EXPECT_EQ(form().width, 4);
  }
}

TEST_F(VectorFiles, HaveFurtherLayers) {
  modules({{"", kTransformer},
           {"1_Pooling", kPooling},
           {"2_Dense", "sentence_transformers.models.Dense"},
           {"3_Normalize", "sentence_transformers.models.Normalize"}});
  put("1_Pooling/config.json", {{"pooling_mode_mean_tokens", true}});
  put("2_Dense/config.json", {{"in_features", 4},
                              {"out_features", 6},
                              {"bias", false},
                              {"activation_function", "torch.nn.modules.linear.Identity"}});
  ASSERT_EQ(form().layers.size(), 1u);
  EXPECT_EQ(form().layers[0].folder, "2_Dense");
  EXPECT_EQ(form().layers[0].out, 6);
  EXPECT_FALSE(form().layers[0].bias);
  EXPECT_EQ(form().layers[0].act, "identity");
  EXPECT_TRUE(form().normalised);
}

TEST_F(VectorFiles, RefuseWhatIsNotKnown) {
  modules({{"", kTransformer}, {"1_Pooling", kPooling}});
  put("1_Pooling/config.json", {{"pooling_mode_cls_token", true}, {"pooling_mode_mean_tokens", true}});
  test::expect_says(refused(), "several");
  put("1_Pooling/config.json", {{"pooling_mode", "attention"}});
  test::expect_says(refused(), "none that is known");
  put("1_Pooling/config.json", {{"pooling_mode_mean_tokens", true}, {"include_prompt", false}});
  test::expect_says(refused(), "include_prompt");
  modules({{"", kTransformer}, {"1_LSTM", "sentence_transformers.models.LSTM"}});
  test::expect_says(refused(), "LSTM");
}

// What a model gives, how its vectors are read off, and what is put in front of texts.
TEST_F(VectorFiles, ATaskFollowsFromTheFolder) {
  put("config.json", {{"model_type", "bert"}, {"architectures", {"BertModel"}}});
  const auto settled = [&](const char* task = "", std::optional<std::string> prompt = {}) {
    struct {
      TaskOptions task;
      ModelOptions model;
      TemplateOptions prompt;
    } o;
    o.model.model = folder.path.string(), o.model.task_type = task, o.task.prompt_name = std::move(prompt);
    o.task.settle(o.model, o.prompt, "");
    return o;
  };
  EXPECT_EQ(settled().model.task_type, "embedding");
  EXPECT_EQ(settled().task.pooling, "mean");
  EXPECT_TRUE(settled().prompt.encoder);
  EXPECT_FALSE(settled().prompt.use_chat_template);
  test::expect_says(test::refusal(Fault::Usage, [&] { settled("causal_lm"); }), "is an encoder");
  write_vector_files(folder.path, {.pooling = Pooling::First, .prompts = {{"query", "Find: "}}});
  EXPECT_EQ(settled().task.pooling, "cls");
  EXPECT_EQ(settled("", "query").prompt.text_prefix, "Find: ");
  EXPECT_EQ(settled().prompt.text_prefix, "");
  test::expect_says(test::refusal(Fault::Usage, [&] { settled("", "answer"); }), "has the prompts query");
  put("config.json", {{"model_type", "bert"}, {"architectures", {"BertForSequenceClassification"}}});
  EXPECT_EQ(settled().model.task_type, "seq_cls");
  EXPECT_EQ(settled("reranker").model.task_type, "reranker");
  put("config.json", {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}});
  EXPECT_EQ(settled().task.pooling, "cls");
  EXPECT_FALSE(settled().prompt.encoder);
}

}  // namespace
}  // namespace apus
