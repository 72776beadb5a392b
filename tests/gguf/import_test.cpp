// SPDX-License-Identifier: Apache-2.0
// A GGUF file's settings as a HuggingFace checkpoint's small files: the configuration and the tokenizer it was made of.
#include "gguf/import.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "checkpoint/gguf_folder.h"
#include "models/spec/family.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

fs::path gguf_case(const std::string& name) { return test::source_dir() / "tests/data/gguf" / name; }

TEST(GgufImport, TheConfigDescribesTheModelThatTheFileWasMadeOf) {
  for (const char* name : {"llama_q8_0", "qwen3_moe_q8_0", "qwen2_q4_0", "qwen2_q4_k_m"}) {
    const Json golden = Json::parse(read_file(gguf_case(name) / "golden.json"))["hf_config"];
    const Json config = GgufModel::open(gguf_case(name) / "model.gguf")->config();
    for (const auto& [key, value] : golden.items()) {
      if (!config.contains(key) || key == "bos_token_id" || key == "eos_token_id") continue;  // the tokenizer's there
      EXPECT_EQ(nlohmann::json(config[key]), nlohmann::json(value)) << name << " " << key;    // in any order
    }
    const DecoderSpec made = describe_model(config), wanted = describe_model(golden);
    EXPECT_EQ(made.shape.head_dim, wanted.shape.head_dim) << name;
    EXPECT_EQ(made.ropes, wanted.ropes) << name;
    EXPECT_EQ(made.tied, wanted.tied) << name;
    EXPECT_EQ(made.attention.qkv_bias, wanted.attention.qkv_bias) << name;
  }
}

TEST(GgufImport, TheTokenizerCutsTextAsTheOneThatTheFileWasMadeOf) {
  const auto model = GgufModel::open(gguf_case("llama_q8_0") / "model.gguf");
  const auto made =
      Tokenizer::from_json(json_text(tokenizer_of_gguf(model->header())), json_text(tokenizer_config_of_gguf(*model)));
  const auto wanted = Tokenizer::load(gguf_case("llama_q8_0") / "hf_checkpoint");
  EXPECT_EQ(made->eos(), wanted->eos());
  EXPECT_EQ(made->pad(), wanted->pad());
  for (const char* text : {"Hello, world! 123 don't", "<|im_start|>user\n\xC3\xA9 e\xCC\x81<|im_end|>\n", "  a\n\n b\t",
                           "<tool_call>{}</tool_call>", "\xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x99\x82"}) {
    EXPECT_EQ(made->encode(text, true), wanted->encode(text, true)) << text;
    EXPECT_EQ(made->decode(made->encode(text), true), wanted->decode(wanted->encode(text), true)) << text;
  }
  for (int32_t id = 0; id < wanted->vocab_size(); ++id) {
    EXPECT_EQ(made->piece(id), wanted->piece(id));
    // The file calls every <|...|> a control token, also those that the original shows.
    EXPECT_EQ(made->is_special(id), wanted->is_special(id) || wanted->piece(id).starts_with("<|")) << id;
  }
}

// The vocabulary of a tokenizer.json of SentencePiece's kind, as a GGUF file has it.
GgufHeader sentence_piece_header(const Json& tokenizer) {
  const Json& vocab = tokenizer["model"]["vocab"];
  GgufValue::Strings tokens(vocab.size());
  GgufValue::Numbers scores(vocab.size(), -1e6);
  GgufValue::Integers kinds(vocab.size(), gguf_token::kNormal);
  for (const auto& [token, id] : vocab.items()) {
    tokens[id.get<size_t>()] = token;
    if (token.size() == 6 && token.starts_with("<0x")) kinds[id.get<size_t>()] = gguf_token::kByte;
  }
  for (const Json& token : tokenizer["added_tokens"])
    if (const size_t id = token["id"].get<size_t>(); id < tokens.size())
      kinds[id] = id == 0 ? gguf_token::kUnknown : gguf_token::kControl;
  double score = 0;
  for (const Json& merge : tokenizer["model"]["merges"]) {
    const std::string both =
        merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    const size_t blank = both.find(' ');
    const std::string token = both.substr(0, blank) + both.substr(blank + 1);
    double& held = scores[vocab[token].get<size_t>()];
    if (held == -1e6) held = score--;
  }
  GgufHeader header;
  header.where = "pieces.gguf";
  header.settings["tokenizer.ggml.model"] = GgufValue::text("llama");
  header.settings["tokenizer.ggml.tokens"] = GgufValue::list(GgufKind::String, tokens);
  header.settings["tokenizer.ggml.scores"] = GgufValue::list(GgufKind::F32, scores);
  header.settings["tokenizer.ggml.token_type"] = GgufValue::list(GgufKind::I32, kinds);
  header.settings["tokenizer.ggml.bos_token_id"] = GgufValue::u32(1);
  return header;
}

TEST(GgufImport, PiecesWithScoresAreMergedAsSentencePieceDoes) {
  const fs::path dir = test::source_dir() / "tests/data/text/tokenizers/tiny-spm-bpe";
  const Json original = Json::parse(read_file(dir / "tokenizer.json"));
  const auto wanted = Tokenizer::load(dir);
  const auto made = Tokenizer::from_json(json_text(tokenizer_of_gguf(sentence_piece_header(original))));
  for (const char* text : {"Hello world, this is a test of the merges.", "  two  spaces",
                           "\xC3\xA9t\xC3\xA9 \xF0\x9F\x99\x82 99", "func(x) { return x + 1; }"})
    EXPECT_EQ(made->encode(text, true), wanted->encode(text, true)) << text;
}

TEST(GgufImport, TheNameOfTheCutIsFoundBothWays) {
  for (const char* name : {"qwen2", "gpt-2", "smollm", "tekken", "gpt-4o"})
    EXPECT_EQ(cut_name({{"pre_tokenizer", cut_rule(name, "").pre_tokenizer}}), name);
  const Json llama = cut_rule("llama-bpe", "").pre_tokenizer;
  EXPECT_EQ(cut_name({{"pre_tokenizer", llama}, {"model", {{"ignore_merges", true}}}}), "llama-bpe");
  EXPECT_EQ(cut_name({{"pre_tokenizer", llama}, {"model", {{"ignore_merges", false}}}}), "glm4");
  EXPECT_EQ(cut_name({{"pre_tokenizer", {{"type", "Whitespace"}}}}), "");
  test::expect_says(test::refusal(Fault::Model, [] { cut_rule("viking", "a.gguf"); }), "known: hunyuan");
}

TEST(GgufImport, FactorsOfPeriodsBecomeLlama3sRuleOrAList) {
  const double theta = 500000;
  std::vector<float> factors;
  for (int i = 0; i < 64; ++i) {
    const double turns = 8192 / (2 * std::numbers::pi * std::pow(theta, i / 64.0));
    const double blend = turns < 1 ? 0 : turns > 4 ? 1 : (turns - 1) / 3;
    factors.push_back(static_cast<float>(1 / ((1 - blend) / 8 + blend)));
  }
  const Json usual = scaling_of_factors(factors, theta, 131072);
  EXPECT_EQ(usual["rope_type"], "llama3");
  EXPECT_EQ(usual["factor"], 8.0);
  EXPECT_EQ(usual["original_max_position_embeddings"], 8192);
  factors[3] = 1.5;
  EXPECT_EQ(scaling_of_factors(factors, theta, 131072)["rope_type"], "longrope");
  EXPECT_TRUE(scaling_of_factors({1, 1, 1}, theta, 1).is_null());
}

const GgufForm& form_of_type(const char* model_type) { return family_of_model_type(model_type, "here").form; }

std::string in_checkpoint(const std::string& gguf, const GgufForm& form) {
  const auto place = place_in_checkpoint(gguf, form);
  return place ? place->name : "";
}

TEST(GgufNames, GoThereAndBack) {
  const GgufForm& form = form_of_type("qwen3_moe");
  for (const auto& [hf, gguf] : {std::pair{"model.embed_tokens.weight", "token_embd.weight"},
                                 {"lm_head.weight", "output.weight"},
                                 {"model.layers.12.self_attn.q_proj.bias", "blk.12.attn_q.bias"},
                                 {"model.layers.0.mlp.gate.weight", "blk.0.ffn_gate_inp.weight"}}) {
    EXPECT_EQ(in_checkpoint(gguf, form), hf);
    const auto places = places_in_file(hf, form);
    ASSERT_EQ(places.size(), 1U) << hf;
    EXPECT_EQ(places[0].name, gguf);
    EXPECT_EQ(places[0].expert, -1);
  }
  EXPECT_EQ(in_checkpoint("blk.3.ffn_up_exps.weight", form), "model.layers.3.mlp.experts.*.up_proj.weight");
  const auto places = places_in_file("model.layers.3.mlp.experts.17.up_proj.weight", form);
  ASSERT_EQ(places.size(), 1U);
  EXPECT_EQ(places[0].name, "blk.3.ffn_up_exps.weight");
  EXPECT_EQ(places[0].expert, 17);
  for (const char* name : {"blk.x.attn_q.weight", "blk.1.ssm_in.weight", "weight", ""})
    EXPECT_EQ(in_checkpoint(name, form), "") << name;
}

// The same word of HuggingFace's is another of llama.cpp's where norms stand around branches.
TEST(GgufNames, FamiliesHaveTheirOwn) {
  const std::string layer = "model.layers.1.", block = "blk.1.";
  for (const auto& [type, hf, gguf] : {std::tuple{"llama", "post_attention_layernorm", "ffn_norm"},
                                       {"gemma3_text", "post_attention_layernorm", "post_attention_norm"},
                                       {"gemma2", "pre_feedforward_layernorm", "ffn_norm"},
                                       {"olmo2", "post_feedforward_layernorm", "post_ffw_norm"},
                                       {"phi3", "self_attn.qkv_proj", "attn_qkv"},
                                       {"phi3", "mlp.gate_up_proj", "ffn_up"},
                                       {"glm4", "post_self_attn_layernorm", "post_attention_norm"},
                                       {"glm4", "post_attention_layernorm", "ffn_norm"},
                                       {"seed_oss", "post_attention_layernorm", "post_attention_norm"},
                                       {"starcoder2", "mlp.c_proj", "ffn_down"},
                                       {"exaone4", "post_attention_layernorm", "post_attention_norm"},
                                       {"hunyuan_v1_dense", "self_attn.key_layernorm", "attn_k_norm"}}) {
    const GgufForm& form = form_of_type(type);
    const auto places = places_in_file(layer + hf + ".weight", form);
    ASSERT_EQ(places.size(), 1U) << type;
    EXPECT_EQ(places[0].name, block + gguf + ".weight") << type;
    EXPECT_EQ(in_checkpoint(block + gguf + ".weight", form), layer + hf + ".weight") << type;
  }
  const auto numbers = [](const char* name, const char* type) {
    return place_in_checkpoint(name, form_of_type(type))->turn.numbers;
  };
  EXPECT_EQ(numbers("blk.0.attn_q_norm.weight", "gemma3_text"), GgufTurn::Numbers::FromOne);
  EXPECT_EQ(numbers("blk.0.attn_q.weight", "gemma3_text"), GgufTurn::Numbers::Same);
  EXPECT_EQ(numbers("output_norm.weight", "llama"), GgufTurn::Numbers::Same);
}

TEST(GgufFolder, StandsForTheFileWhereACheckpointIsRead) {
  const test::Folder cache;
  ::setenv("XDG_CACHE_HOME", cache.path.c_str(), 1);
  const fs::path file = gguf_case("qwen2_q4_0") / "model.gguf", folder = gguf_folder(file);
  EXPECT_EQ(folder, gguf_folder(file));
  EXPECT_EQ(folder.filename(), "model");
  EXPECT_EQ(fs::canonical(folder / kGgufFile), fs::canonical(file));
  EXPECT_EQ(Tokenizer::load(folder)->eos(), 578);
  EXPECT_TRUE(ChatTemplate::find(folder).has_value());
  EXPECT_EQ(gguf_meant(file.string()), file);
  EXPECT_EQ(gguf_meant(gguf_case("qwen2_q4_0").string()), file);
  EXPECT_EQ(gguf_meant(folder.string()), std::nullopt);
  fs::copy_file(file, cache.path / "a.gguf");
  fs::copy_file(file, cache.path / "b.gguf");
  test::expect_says(test::refusal(Fault::Usage, [&] { gguf_meant(cache.path.string()); }),
                    "give one of them: a.gguf, b.gguf");
  ::unsetenv("XDG_CACHE_HOME");
}

TEST(GgufModel, OtherArchitecturesAndTensorsAreRefusedByName) {
  const test::Folder folder;
  const auto refused = [&](GgufPlan plan) {
    GgufWriter writer(folder.path / "a.gguf", plan);
    for (const GgufPlan::Tensor& t : plan.tensors) {
      const std::vector<std::byte> zeros(static_cast<size_t>(t.shape[0] * t.shape[1] * 4));
      writer.add(zeros.data(), std::ssize(zeros));
    }
    writer.commit();
    return test::refusal(Fault::Model, [&] { GgufModel::open(folder.path / "a.gguf"); });
  };
  GgufPlan plan;
  plan.settings = {{"general.architecture", GgufValue::text("qwen9")}};
  plan.tensors = {{"token_embd.weight", GgmlType::F32, {1, 2}}};
  test::expect_says(refused(plan), "'qwen9' is not read from GGUF files; nearest: qwen");
  test::expect_says(refused(plan), "these are: afmoe, apertus, arcee");
  test::expect_says(refused(plan), "Other models are read as HuggingFace folders");
  const auto model = GgufModel::open(gguf_case("qwen2_q4_0") / "model.gguf");
  plan.settings.assign(model->header().settings.begin(), model->header().settings.end());
  plan.tensors.push_back({"blk.0.ssm_in.weight", GgmlType::F32, {1, 2}});
  test::expect_says(refused(plan), "1 tensors are not known in the architecture 'qwen2': blk.0.ssm_in.weight");
}

}  // namespace
}  // namespace apus
