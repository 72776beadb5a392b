// SPDX-License-Identifier: Apache-2.0
// Chat templates: real ones against transformers (with APUS_GOLDEN), the project's own, and how they are found.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/text/text_golden.h"
#include "text/builtin_templates.h"
#include "text/jinja/strings.h"

namespace apus {
namespace {

namespace fs = std::filesystem;

class RealTemplates : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = golden_text::shared().value_or("");
    if (root_.empty())
      GTEST_SKIP() << "real chat templates are not part of the repository; APUS_GOLDEN names their folder";
    for (Json& row : golden_text::lines(root_ / "chat/conversations.jsonl")) {
      const std::string id = row["id"];
      conversations_[id] = std::move(row);
    }
  }

  Rendered render(const Json& row) {
    const std::string name = row["template"];
    auto it = templates_.find(name);
    if (it == templates_.end()) {
      it = templates_.emplace(name, ChatTemplate::from_text(read_file(root_ / "templates" / name), name)).first;
    }
    const Json& conversation = conversations_.at(row["conv"].get<std::string>());
    ChatInput input;
    input.messages = &conversation["messages"];
    if (conversation.contains("tools")) input.tools = &conversation["tools"];
    if (conversation.contains("documents")) input.documents = &conversation["documents"];
    input.kwargs = &row["kwargs"];
    input.add_generation_prompt = row["add_generation_prompt"];
    input.continue_final_message = row.value("continue_final_message", false);
    input.now = LocalTime::parse(row.value("now", "2025-07-04T12:34:56"));
    input.as_given = true;
    return it->second.render(input);
  }

  fs::path root_;
  std::map<std::string, Json> conversations_;
  std::map<std::string, ChatTemplate> templates_;
};

TEST_F(RealTemplates, RenderAsTransformersRendersThem) {
  for (const Json& row : golden_text::lines(root_ / "chat/cases.jsonl")) {
    SCOPED_TRACE(row["id"].get<std::string>());
    if (row.contains("expected")) {
      try {
        EXPECT_EQ(render(row).text, row["expected"].get<std::string>());
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
      continue;
    }
    try {
      ADD_FAILURE() << "should fail, but gives " << render(row).text;
    } catch (const TemplateError& error) {
      EXPECT_EQ(error.raised, row["error"]["raised_by_template"].get<bool>());
      EXPECT_TRUE(!error.raised || error.message == row["error"]["message"].get<std::string>()) << error.message;
    }
  }
}

TEST_F(RealTemplates, MarkWhatTheAssistantSaid) {
  for (const Json& row : golden_text::lines(root_ / "chat/masks.jsonl")) {
    SCOPED_TRACE(row["id"].get<std::string>());
    if (row.contains("error")) {
      EXPECT_THROW(render(row), TemplateError);
      continue;
    }
    const Rendered out = render(row);
    EXPECT_EQ(out.text, row["expected"].get<std::string>());
    Json spans = Json::array();  // the file counts code points
    const auto points = [&](size_t bytes) { return jinja::count_points(std::string_view(out.text).substr(0, bytes)); };
    for (const auto& [begin, end] : out.generation) spans.push_back({points(begin), points(end)});
    EXPECT_EQ(spans, row["spans"]);
  }
}

TEST_F(RealTemplates, AndTokenizersGiveTheIdsOfApplyChatTemplate) {
  std::map<std::string, Json> cases;
  for (Json& row : golden_text::lines(root_ / "chat/cases.jsonl")) {
    const std::string id = row["id"];
    cases[id] = std::move(row);
  }
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers;
  for (const char* name : {"tiny-qwen3", "tiny-internvl3", "qwen3"}) tokenizers[name] = golden_text::tokenizer(name);
  for (const Json& row : golden_text::lines(root_ / "chat/ids.jsonl")) {
    const std::string text = render(cases.at(row["case"].get<std::string>())).text;
    for (const auto& [name, tokenizer] : tokenizers) {
      if (!tokenizer || !row.contains(name)) continue;
      EXPECT_EQ(tokenizer->encode(text), row[name].get<std::vector<int32_t>>()) << row["case"] << " " << name;
    }
  }
}

// A folder that is gone after the test.
class Folders : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(::testing::TempDir()) /
           ("apus_chat_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  void put(const std::string& name, const std::string& text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
  }
  std::string render(const ChatTemplate& chat, Json messages, const Json* tools = nullptr,
                     const std::string& variant = "") {
    ChatInput input;
    input.messages = &messages;
    input.tools = tools;
    input.variant = variant;
    return chat.render(input).text;
  }
  fs::path dir_;
  const Json one_ = Json::array({{{"role", "user"}, {"content", "hi"}}});
  const Json tool_ = Json::array({{{"name", "f"}}});
};

TEST_F(Folders, NamedTemplatesAreChosenByTools) {
  put("tokenizer_config.json",
      R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null, "chat_template": [
      {"name": "default", "template": "D{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}"},
      {"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]})");
  const ChatTemplate chat = ChatTemplate::load(dir_);
  EXPECT_EQ(render(chat, one_), "D<s></s>False");
  EXPECT_EQ(render(chat, one_, &tool_), "T");
  EXPECT_EQ(render(chat, one_, &tool_, "rag"), "R");
  EXPECT_THROW(render(chat, one_, nullptr, "nope"), Error);
  EXPECT_EQ(chat.variants(), (std::vector<std::string>{"default", "rag", "tool_use"}));
}

TEST_F(Folders, FilesComeBeforeTheConfiguration) {
  EXPECT_FALSE(ChatTemplate::find(dir_).has_value());
  EXPECT_THROW(ChatTemplate::load(dir_), Error);
  put("tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "config");
  put("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "json");
  put("chat_template.jinja", "file");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "file");
  put("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_, &tool_), "tools");
  put("chat_template.jinja", "{% if %}");
  EXPECT_THROW(ChatTemplate::load(dir_), TemplateError);
  put("tokenizer_config.json", "[1]");
  EXPECT_THROW(ChatTemplate::load(dir_), Error);
}

TEST_F(Folders, SpecialTokensOfOlderFoldersAndOfClasses) {
  put("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}");
  put("special_tokens_map.json", R"({"bos_token": "<b>", "eos_token": {"content": "<e>"}})");
  put("tokenizer_config.json", R"({"bos_token": "<a>", "pad_token": "<p>"})");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "<b>|<e>|<p>");
  put("tokenizer_config.json", R"({"bos_token": "<a>", "pad_token": "<p>", "added_tokens_decoder": {}})");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "<a>|<e>|<p>");
  put("special_tokens_map.json", "{}");
  put("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast", "eos_token": null})");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "<s>||");
}

TEST_F(Folders, TheLastMessageIsContinued) {
  const auto keeps = ChatTemplate::from_text("{% for m in messages %}<{{ m.content }}>{% endfor %}", "keeps");
  const auto trims = ChatTemplate::from_text("{% for m in messages %}<{{ m.content | trim }}>{% endfor %}", "trims");
  const auto drops = ChatTemplate::from_text("nothing", "drops");
  Json messages = Json::array({{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", "Sure  "}}});
  ChatInput input;
  input.messages = &messages;
  input.continue_final_message = true;
  EXPECT_EQ(keeps.render(input).text, "<hi><Sure  ");
  EXPECT_EQ(trims.render(input).text, "<hi><Sure");
  EXPECT_THROW(drops.render(input), Error);
  const auto half = ChatTemplate::from_text("{{ messages[-1].content[2:] }}", "half");
  // The end is there, but another message than the one to continue.
  EXPECT_THROW(half.render(input), Error);
  input.add_generation_prompt = true;
  EXPECT_THROW(keeps.render(input), Error);
  input.add_generation_prompt = false;
  for (const Json& bad :
       {Json::array(), Json::array({{{"role", "user"}}}), Json::array({{{"role", "user"}, {"content", nullptr}}})}) {
    messages = bad;
    EXPECT_THROW(keeps.render(input), Error) << bad;
  }
}

// Templates that write a mark for each image of a message see images where the text has the mark.
TEST_F(Folders, MarksOfImagesInATextAreParts) {
  const std::string parts =
      "{% for m in messages %}[{% for p in m.content %}{% if p.type == 'image' %}<image>\n{% endif %}{% endfor %}"
      "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text | trim }}{% endif %}{% endfor %}]{% endfor %}";
  const auto lists = ChatTemplate::from_text(parts, "lists");
  const Json asked = Json::array({{{"role", "user"}, {"content", "What is <image>?"}}});
  EXPECT_EQ(render(lists, asked), "[<image>\nWhat is?]");
  EXPECT_EQ(render(lists, one_), "[hi]");
  const auto both =
      ChatTemplate::from_text("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}" + parts +
                                  "{% endif %}{% endfor %}",
                              "both");
  EXPECT_EQ(render(both, one_), "hi");
  EXPECT_EQ(render(both, asked), "[<image>\nWhat is?]");
  const auto words = ChatTemplate::from_text("{{ messages[0].content }}", "words");
  EXPECT_EQ(render(words, asked), "What is <image>?");
  // Of a template that numbers all images before all messages.
  const auto numbered = ChatTemplate::from_text(
      "{% set n = namespace(value=0) %}{% for m in messages %}{% if m.content is not string %}{% for p in m.content %}"
      "{% if p.type == 'image' %}{% set n.value = n.value + 1 %}{{ 'Image ' ~ n.value ~ '<|image|>' }}"
      "{% elif p.type == 'video' %}<|video|>{% endif %}{% endfor %}{% endif %}{% endfor %}{% for m in messages %}"
      "({% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}"
      "{% endif %}){% endfor %}",
      "numbered");
  const Json several = Json::array({{{"role", "user"}, {"content", "<|image|><|image|>Which?"}},
                                    {{"role", "user"}, {"content", "<|video|>And this?"}},
                                    {{"role", "user"}, {"content", "Why?"}}});
  EXPECT_EQ(render(numbered, several), "Image 1<|image|>Image 2<|image|><|video|>(Which?)(And this?)(Why?)");
}

// Molmo2's own processor begins a conversation with a token that its template does not write.
TEST_F(Folders, AModelsOwnBeginStandsBeforeAConversation) {
  put("tokenizer_config.json", R"({"bos_token": "<b>", "eos_token": "<e>"})");
  put("chat_template.jinja", "{{ messages[0].content }}");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "hi");
  put("config.json", R"({"model_type": "molmo2"})");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "<b>hi");
  put("chat_template.jinja", "{{ bos_token + messages[0].content }}");
  EXPECT_EQ(render(ChatTemplate::load(dir_), one_), "<b>hi");
}

TEST_F(Folders, OwnTemplatesSpeakTheirFormats) {
  put("tokenizer_config.json", R"({"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>"})");
  const Json messages = parse_exact_json(R"([
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "2+2?"}]},
    {"role": "assistant", "content": "", "reasoning_content": "easy", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2.0}}}]},
    {"role": "tool", "content": "4"}, {"role": "assistant", "content": "4"}])");
  ChatInput input;
  input.messages = &messages;
  const auto chatml = ChatTemplate::builtin("chatml", dir_);
  const Rendered out = chatml.render(input);
  EXPECT_EQ(out.text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"
            "<think>\neasy\n</think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": "
            "2.0}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n4<|im_end|>\n");
  ASSERT_EQ(out.generation.size(), 2u);
  EXPECT_EQ(out.text.substr(out.generation[1].first, out.generation[1].second - out.generation[1].first),
            "4<|im_end|>");
  EXPECT_TRUE(chatml.marks_generation());

  input.add_generation_prompt = true;
  const auto llama = ChatTemplate::builtin("llama3", dir_);
  EXPECT_EQ(
      llama.render(input).text,
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
      "<|start_header_id|>user<|end_header_id|>\n\n2+2?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
      "{\"name\": \"add\", \"parameters\": {\"a\": 2, \"b\": "
      "2.0}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n4<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n4<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  input.tools = &tool_;
  EXPECT_NE(chatml.render(input).text.find("<tools>\n{\"name\": \"f\"}\n</tools>"), std::string::npos);
  for (const std::string& name : ChatTemplate::builtin_names()) {
    const Json image = Json::array({{{"role", "user"}, {"content", {{{"type", "image"}}}}}});
    if (name == "paligemma")
      EXPECT_EQ(render(ChatTemplate::builtin(name), image), "<image>\n");  // its tokenizer names no beginning
    else
      EXPECT_THROW(render(ChatTemplate::builtin(name), image), TemplateError) << name;
    EXPECT_NO_THROW(render(ChatTemplate::builtin(name), Json::array())) << name;
  }
  EXPECT_THROW(ChatTemplate::builtin("nope"), Error);
}

TEST_F(Folders, OfFamiliesThatBringNone) {
  const Json asked = Json::array({{{"role", "user"}, {"content", "Hi"}}});
  EXPECT_EQ(render(ChatTemplate::builtin("qwen", dir_), asked),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  const Json told =
      Json::array({{{"role", "system"}, {"content", "Be brief."}}, {{"role", "user"}, {"content", "Hi"}}});
  EXPECT_EQ(render(ChatTemplate::builtin("qwen", dir_), told),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(render(ChatTemplate::builtin("deepseek_vl2", dir_), asked), "<|User|>: Hi\n\n<|Assistant|>:");
  EXPECT_EQ(builtin_template_of("qwen"), "qwen");
  EXPECT_EQ(builtin_template_of("GOT"), "got_ocr2");
  Json turns = told;
  turns[1]["content"] = "[BEGIN_AUDIO][AUDIO]Hi";
  turns.push_back({{"role", "assistant"}, {"content", "Hello."}});
  turns.push_back(asked[0]);
  EXPECT_EQ(render(ChatTemplate::builtin("mistral", dir_), turns),
            "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST][BEGIN_AUDIO][AUDIO]Hi[/INST]Hello.</s>[INST]Hi[/INST]");
  EXPECT_EQ(builtin_template_of("voxtral"), "mistral");
  turns[1]["content"] = "<image_soft_token>Hi";
  turns[2]["content"] = "Hello.\n";
  write_file_atomic(dir_ / "tokenizer_config.json", R"({"bos_token": "<bos>"})");
  EXPECT_EQ(render(ChatTemplate::builtin("gemma", dir_), turns),
            "<bos><start_of_turn>user\nBe brief.\n\n<image_soft_token>Hi<end_of_turn>\n<start_of_turn>model\nHello."
            "<end_of_turn>\n<start_of_turn>user\nHi<end_of_turn>\n");
  EXPECT_EQ(builtin_template_of("gemma3n"), "gemma");
}

// What SAIL-VL2's files have in tokenizer_config.json is another model's.
TEST_F(Folders, WhoseTokenizerHasAnothersTemplate) {
  write_file_atomic(dir_ / "config.json", R"({"model_type": "sailvl"})");
  write_file_atomic(dir_ / "tokenizer_config.json", R"({"chat_template": "another"})");
  const Json asked = Json::array({{{"role", "system"}, {"content", "Be brief."}},
                                  {{"role", "user"}, {"content", "<img><IMG_CONTEXT></img>\nHi"}},
                                  {{"role", "assistant"}, {"content", "Hello."}}});
  EXPECT_EQ(render(ChatTemplate::load(dir_), asked),
            "<|im_start|>system\nBe brief.<|im_end|><|im_start|>user\n<img><IMG_CONTEXT></img>\nHi<|im_end|>"
            "<|im_start|>assistant\nHello.<|im_end|>");
  const std::string told = render(ChatTemplate::load(dir_), Json::array({asked[1]}));
  EXPECT_NE(told.find("UniVL"), std::string::npos);
  write_file_atomic(dir_ / "chat_template.jinja", "own");
  EXPECT_EQ(render(ChatTemplate::load(dir_), asked), "own");
}

}  // namespace
}  // namespace apus
