// SPDX-License-Identifier: Apache-2.0
// What is read and what is learnt of a row: against the masks of transformers, and by the text that comes out.
#include "data/encode/encoder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/files.h"
#include "data/rows/normalize.h"
#include "tests/data/data_test_tools.h"
#include "tests/paths.h"

namespace apus {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const Tokenizer> tiny(const std::string& name = "tiny-qwen3") {
  return Tokenizer::load(test::source_dir() / "tests/data/text/tokenizers" / name);
}
fs::path golden() {
  const char* folder = std::getenv("APUS_GOLDEN");
  return folder && *folder ? fs::path(folder) / "text" : fs::path();
}

// ChatML without `generation` blocks. The second one can think or not, and forgets earlier thoughts, like Qwen3's.
constexpr const char* kPlain =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{{ "
    "c.function | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kHybrid =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% set text = m.content.split('</think>')[-1].lstrip('\\n') %}"
    "{% if loop.last and '</think>' in m.content %}{{ m.content }}{% elif loop.last %}<think>\n\n</think>\n\n{{ text "
    "}}{% else %}{{ text }}{% endif %}"
    "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking is "
    "false %}<think>\n\n</think>\n\n{% endif %}{% endif %}";

Encoder encoder(const char* chat, EncodeOptions options = {}) {
  return Encoder(tiny(), ChatTemplate::from_text(chat, "test"), std::move(options));
}
Row row_of(const std::string& text) {
  Row row{Json::parse(text), {std::make_shared<const std::string>("rows.jsonl"), 3, false}};
  row.value = normalize_row(row, {});
  return row;
}
// The whole text with what is learnt between [ and ].
std::string shown(const Sample& sample, const Tokenizer& tokenizer) {
  std::string out;
  bool open = false;
  for (size_t i = 0; i <= sample.ids.size(); ++i) {
    const bool learnt = i < sample.ids.size() && sample.trained[i];
    if (learnt != open) out += learnt ? "[" : "]";
    open = learnt;
    if (i < sample.ids.size()) out += tokenizer.token_bytes(sample.ids[i]);
  }
  return out;
}
std::string shown(const Encoder& e, const std::string& row) {
  return shown(e.encode(row_of(row)).at(0), e.tokenizer());
}

TEST(Encoder, AnotherModelsTokenizerIsRefused) {
  const std::string row =
      R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]})";
  const auto most = static_cast<int64_t>(tiny()->vocab_size());
  EXPECT_NO_THROW(encoder(kPlain, {.vocabulary = most}).encode(row_of(row)));
  EXPECT_THROW(encoder(kPlain, {.vocabulary = most / 2}).encode(row_of(row)), Error);
}

// What is learnt, as text: tokens of one weight in brackets, "<weight>".
std::string weighed(const Encoder& e, const std::string& json) {
  const Sample s = e.encode(row_of(json)).at(0);
  std::string out;
  float last = -1;
  for (size_t i = 0; i < s.ids.size(); ++i) {
    if (!s.trained[i]) continue;
    const float weight = s.weights.empty() ? 1 : s.weights[i];
    if (weight != last) out += str("<", weight, ">");
    last = weight;
    out += e.tokenizer().token_bytes(s.ids[i]);
  }
  return out;
}

TEST(Encoder, TakesRowsThatAreEncodedAlreadyAsTheyAre) {
  const Encoder e = encoder(kPlain, {.max_length = 4, .loss_scale = "last_round"});
  const auto one = [&](const std::string& row) { return e.encode(row_of(row)).at(0); };
  const Sample plain = one(R"({"input_ids": [5, 6, 7]})");
  EXPECT_EQ(plain.ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(plain.trained, (std::vector<uint8_t>{0, 1, 1}));
  EXPECT_TRUE(plain.weights.empty());
  const Sample weighed =
      one(R"({"input_ids": "[5, 6, 7, 8]", "labels": [5, -100, 7, 8], "loss_scale": [1, 1, 0, 2.5], "channel": "a"})");
  EXPECT_EQ(weighed.trained, (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(weighed.weights, (std::vector<float>{1, 1, 0, 2.5f}));
  EXPECT_EQ(weighed.channel, "a");
  const auto refused = [&](const std::string& row, const char* why) {
    const std::string said = error_of([&] { one(row); });
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  refused(R"({"input_ids": [5, 6], "labels": [5]})", "key 'labels': has 1 entries for 2 input_ids");
  refused(R"({"input_ids": [5, 6], "labels": [6, -100]})", "a label is its token (not the next one), or -100");
  refused(R"({"input_ids": [5, 6], "labels": [5, -100]})", "nothing in the row is learnt");
  refused(R"({"input_ids": [5, 99999999]})", "entry 1 is 99999999; the model's tokens are 0 to");
  refused(R"({"input_ids": [5, 4294967301]})", "holds 4294967301, no whole number of a token");
  refused(R"({"input_ids": [5, 6.5]})", "holds 6.5");
  refused(R"({"input_ids": [5, 6], "loss_scale": [1, -1]})", "holds -1, which is no weight");
  refused(R"({"input_ids": [5, 6], "attention_mask": [1, 0]})", "leave the padding out");
  refused(R"({"input_ids": [5, 6, 7, 8, 9]})", "MaxLengthError");
  const Row row = row_of(R"({"input_ids": [5, 6]})");
  EXPECT_NE(error_of([&] { e.encode_messages(row, row.value["messages"]); }).find("are for `apus sft` and `apus pt`"),
            std::string::npos);
}

TEST(Encoder, LearnsAnswersAndTheirEnd) {
  const Encoder e = encoder(kPlain);
  EXPECT_EQ(shown(e, R"({"query":"hi","response":"hello","history":[["a","b"]],"system":"s"})"),
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>\n]<|"
            "im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[hello<|im_end|>\n]");
  EXPECT_EQ(
      shown(encoder(kPlain, {.system = "be good"}), R"({"query":"hi","response":"yo"})"),
      "<|im_start|>system\nbe good<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[yo<|im_end|>\n]");
}

TEST(Encoder, TokensDoNotCrossIntoAnAnswer) {
  const Encoder e = encoder(kPlain);
  const Sample s = e.encode(row_of(R"({"query":"hi","response":"\nhello"})")).at(0);
  EXPECT_EQ(shown(s, e.tokenizer()), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[\nhello<|im_end|>\n]");
  const auto prompt = e.tokenizer().encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), s.ids.begin()));
}

TEST(Encoder, RowsChooseTheirTurns) {
  const Encoder e = encoder(kPlain);
  const std::string row =
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","loss":false},{"role":"user","content":"c"},{"role":"assistant","content":"d","loss_scale":0.5}]})";
  EXPECT_EQ(shown(e, row),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_"
            "start|>assistant\n[d<|im_end|>\n]");
  const Sample s = e.encode(row_of(row)).at(0);
  ASSERT_FALSE(s.weights.empty());
  EXPECT_EQ(s.weights.back(), 1.0f);  // the end of the turn
  EXPECT_EQ(s.weights[s.weights.size() - 3], 0.5f);
  // With every token learnt such a turn still is not, but what ends it.
  EXPECT_EQ(shown(encoder(kPlain, {.loss_scale = "all"}), row),
            "<|im_start|>[user\na<|im_end|>\n<|im_start|>assistant\n]b[<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_"
            "start|>assistant\nd<|im_end|>\n]");
  // A weight does not add a turn that the base leaves out; "loss": true does.
  const auto first = [](const char* extra) {
    return str(R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b",)", extra,
               R"(},{"role":"user","content":"c"},{"role":"assistant","content":"d"}]})");
  };
  const Encoder last = encoder(kPlain, {.loss_scale = "last_round"});
  EXPECT_NE(shown(last, first(R"("loss_scale":2)")).find("assistant\nb<|im_end|>"), std::string::npos);
  EXPECT_NE(shown(last, first(R"("loss":true)")).find("assistant\n[b<|im_end|>\n]"), std::string::npos);
}

TEST(Encoder, AnAnswerAloneFollowsAnEmptyQuestion) {
  EXPECT_EQ(shown(encoder(kPlain), R"({"messages":[{"role":"assistant","content":"b"}]})"),
            "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>\n]");
}

TEST(Encoder, TheLastRoundBeginsBehindAToolsAnswer) {
  const char* const row = R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"call"},
      {"role":"tool","content":"r"},{"role":"assistant","content":"a"}]})";
  const std::string all = shown(encoder(kPlain), row), last = shown(encoder(kPlain, {.loss_scale = "last_round"}), row);
  EXPECT_NE(all.find("[call"), std::string::npos);
  EXPECT_EQ(last.find("[call"), std::string::npos);
  EXPECT_NE(last.find("[a<|im_end|>\n]"), std::string::npos);
}

// Tokens are not joined across a change of weight, and are where there is none.
TEST(Encoder, WhatCountsAlikeIsReadTogether) {
  const std::string row = R"({"query":"hi","response":"\nhello"})";
  const Encoder e = encoder(kPlain), all = encoder(kPlain, {.loss_scale = "all"});
  EXPECT_EQ(e.encode(row_of(row)).at(0).length(), all.encode(row_of(row)).at(0).length() + 1);
  const Encoder react = encoder(kPlain, {.loss_scale = "react"});
  const std::string cut = R"({"query":"hi","response":"Observation:\nx"})";
  EXPECT_EQ(weighed(react, cut), "<2>Observation:<1><|im_end|>\n");
  EXPECT_GT(react.encode(row_of(cut)).at(0).length(), e.encode(row_of(cut)).at(0).length());
}

TEST(Encoder, LossScaleBases) {
  const std::string row = R"({"query":"c","response":"d","history":[["a","b"]]})";
  EXPECT_EQ(shown(encoder(kPlain, {.loss_scale = "last_round"}), row),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n<|im_"
            "start|>assistant\n[d<|im_end|>\n]");
  const Sample all = encoder(kPlain, {.loss_scale = "all"}).encode(row_of(row)).at(0);
  EXPECT_EQ(all.trained_tokens(), all.length() - 1);
}

TEST(Encoder, ThinkingIsHandledPerTurn) {
  const Encoder e = encoder(kHybrid);
  // An answer without thoughts follows an empty thought that is not learnt;
  // with thoughts they are learnt, in history too.
  EXPECT_EQ(shown(e, R"({"query":"q","response":"a"})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n[a<|im_end|>\n]");
  EXPECT_EQ(shown(e, R"({"query":"q2","response":"a2","history":[["q","<think>\nhm\n</think>\n\na"]]})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[<think>\nhm\n</"
            "think>\n\na<|im_end|>\n]<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n<think>\n\n</"
            "think>\n\n[a2<|im_end|>\n]");
  // An empty thought in the data itself is not learnt either.
  EXPECT_EQ(shown(e, R"({"query":"q","response":"<think>\n\n</think>\n\na"})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n[a<|im_end|>\n]");
  EXPECT_EQ(shown(encoder(kHybrid, {.ignore_empty_think = false}), R"({"query":"q","response":"a"})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</think>\n\na<|im_end|>\n]");
  EXPECT_EQ(shown(encoder(kHybrid, {.add_non_thinking_prefix = false}), R"({"query":"q","response":"a"})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>\n]");
  // Only the last round is learnt: what was before stands as the template shows it then.
  EXPECT_EQ(shown(encoder(kHybrid, {.loss_scale = "last_round"}),
                  R"({"query":"q2","response":"a2","history":[["q","<think>\nhm\n</think>\n\na"]]})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>user\nq2<|im_end|>\n<|im_"
            "start|>assistant\n<think>\n\n</think>\n\n[a2<|im_end|>\n]");
}

TEST(Encoder, EarlierRoundsHaveNoEmptyThoughts) {
  const char* const row = R"({"query":"q2","response":"a2","history":[["q","<think>\nhm\n</think>\n\n a "]]})";
  const std::string wanted =
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>\n]<|im_start|>user\nq2<|im_end|>\n<|im_"
      "start|>assistant\n<think>\n\n</think>\n\n[a2<|im_end|>\n]";
  EXPECT_EQ(shown(encoder(kHybrid, {.preserve_thinking = false}), row), wanted);
  const std::string plain = R"({"query":"q2","response":"a2","history":[["q","a"]]})";
  EXPECT_EQ(shown(encoder(kHybrid, {.preserve_thinking = false}), plain), wanted);
}

TEST(Encoder, PromptsThatOpenTheThoughts) {
  const std::string opens = std::string(kPlain);
  const std::string chat = opens.substr(0, opens.rfind("{% endif %}")) + "<think>\n{% endif %}";
  EXPECT_EQ(shown(encoder(chat.c_str()), R"({"query":"q","response":"<think>\nhm\n</think>\n\na"})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n[hm\n</think>\n\na<|im_end|>\n]");
}

TEST(Encoder, QuestionsEndWhereTheAnswerBegins) {
  const Encoder e = encoder(kPlain);
  Row row{Json::parse(
              R"({"messages":[{"role":"user","content":"Why?"},{"role":"assistant","content":"So."}],"solution":"7"})"),
          {std::make_shared<const std::string>("rows.jsonl"), 3, false}};
  row.value = normalize_row(row, {.columns = {}, .keep_unused = true, .names = {}});
  const Sample sample = e.encode_prompt(row);
  EXPECT_EQ(shown(sample, e.tokenizer()), "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(sample.trained_tokens(), 0);
  EXPECT_EQ(Json::parse(sample.row)["solution"], "7");
  EncodeOptions shorter;
  shorter.max_length = 4;
  EXPECT_THROW(encoder(kPlain, shorter).encode_prompt(row), RowError);
  shorter.truncation = Truncation::Left;
  EXPECT_EQ(encoder(kPlain, shorter).encode_prompt(row).ids,
            (std::vector<int32_t>{sample.ids.end() - 4, sample.ids.end()}));
  row.value["messages"] = Json::array({{{"role", "assistant"}, {"content", "So."}}});
  EXPECT_THROW(e.encode_prompt(row), RowError);
}

TEST(Encoder, ToolCallsAreTurns) {
  EXPECT_EQ(
      shown(
          encoder(kPlain),
          R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"let me see","tool_calls":[{"function":{"name":"f","arguments":"{\"x\":1}"}}]},{"role":"tool","content":"r"},{"role":"assistant","content":"a"}]})"),
      "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[let me see<tool_call>\n{\"name\": \"f\", \"arguments\": "
      "{\"x\": 1}}\n</tool_call><|im_end|>\n]<|im_start|>tool\nr<|im_end|>\n<|im_start|>assistant\n[a<|im_end|>\n]");
}

TEST(Encoder, TemplatesThatDoNotShowCallsAreRefused) {
  Encoder e = encoder(
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  std::vector<std::string> remarks;
  e.on_remark([&](const Origin&, const std::string& text) { remarks.push_back(text); });
  const std::string call = R"({"role":"tool_call","content":"{\"name\":\"weather\",\"arguments\":{}}"})";
  EXPECT_NE(error_of([&] {
              shown(e, R"({"messages":[{"role":"user","content":"q"},)" + call + "]}");
            }).find("does not show calls of tools (weather"),
            std::string::npos);
  shown(e, R"({"query":"q","response":"a","tools":[{"name":"weather"}]})");
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("does not show the row's tools"), std::string::npos);
}

TEST(Encoder, MarksWrittenByHandAreRemarkedAndLeftOut) {
  Encoder e = encoder(kPlain);
  std::vector<std::string> remarks;
  e.on_remark([&](const Origin& origin, const std::string& text) { remarks.push_back(origin.text() + ": " + text); });
  EXPECT_EQ(shown(e, R"({"query":"hi","response":"hello</s>"})"),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[hello<|im_end|>\n]");
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("rows.jsonl, line 3: the answer ends with '</s>', written by hand"), std::string::npos);
  // A template that does not end turns: the tokenizer's end token is put there, and said.
  const Encoder open = encoder(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% "
      "endif %}");
  const std::string eos = open.tokenizer().special_token("eos_token");
  EXPECT_EQ(shown(open, R"({"query":"hi","response":"hello"})"), "user: hi\nassistant: [hello\n" + eos + "]");
}

TEST(Encoder, RefusesRowsWithoutAnAnswer) {
  const Encoder e = encoder(kPlain);
  EXPECT_NE(error_of([&] {
              e.encode(row_of(R"({"query":"only a question"})"));
            }).find("rows.jsonl, line 3, key 'messages': the conversation ends with the role user"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              e.encode(row_of(
                  R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b","loss":false}]})"));
            }).find("nothing in the row is learnt"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] {
        e.encode(row_of(R"({"messages":[{"role":"user","content":"a"},{"role":"tool_call","content":"not json"}]})"));
      }).find("a tool_call message"),
      std::string::npos);
  EXPECT_NE(error_of([&] {
              e.encode(row_of(R"({"query":"<image>a","response":"b","images":["x.png"]})"));
            }).find("reads text only"),
            std::string::npos);
  // It cannot take content in parts.
  const Encoder lines = encoder("{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
  EXPECT_NE(error_of([&] {
              lines.encode(row_of(R"({"query":"a","response":"b","images":["x.png"]})"));
            }).find("key 'images': the row has images, but this model reads text only"),
            std::string::npos);
}

TEST(Encoder, Truncates) {
  const std::string row = R"({"query":"one two three four","response":"five six seven eight"})";
  const Sample whole = encoder(kPlain).encode(row_of(row)).at(0);
  const auto with = [&](Truncation t) { return EncodeOptions{.max_length = whole.length() - 4, .truncation = t}; };
  EXPECT_NE(error_of([&] { encoder(kPlain, with(Truncation::Delete)).encode(row_of(row)); })
                .find(str("MaxLengthError: Current length of row(", whole.length(), ") is larger than the max_length(",
                          whole.length() - 4, ")")),
            std::string::npos);
  const Sample left = encoder(kPlain, with(Truncation::Left)).encode(row_of(row)).at(0);
  EXPECT_EQ(left.ids, std::vector<int32_t>(whole.ids.begin() + 4, whole.ids.end()));
  const Sample right = encoder(kPlain, with(Truncation::Right)).encode(row_of(row)).at(0);
  EXPECT_EQ(right.ids, std::vector<int32_t>(whole.ids.begin(), whole.ids.end() - 4));
  EncodeOptions keep = with(Truncation::Left);
  keep.uncut = {whole.ids[0]};
  const Sample kept = encoder(kPlain, keep).encode(row_of(row)).at(0);
  EXPECT_EQ(kept.length(), whole.length() - 4);
  EXPECT_EQ(kept.ids[0], whole.ids[0]);
  const auto parts = encoder(kPlain, {.max_length = 7, .truncation = Truncation::Split}).encode(row_of(row));
  std::vector<int32_t> joined;
  for (const auto& part : parts) {
    EXPECT_LE(part.length(), 7);
    EXPECT_EQ(part.trained[0], 0);
    joined.insert(joined.end(), part.ids.begin(), part.ids.end());
  }
  EXPECT_GE(joined.size() + 1, whole.ids.size());
}

TEST(Encoder, PlainTextEndsWithTheEndToken) {
  const Encoder e(tiny(), std::nullopt, {.use_chat_template = false, .loss_scale = "all"});
  const Sample s = e.encode(row_of(R"({"text":"once upon"})")).at(0);
  EXPECT_EQ(s.ids.back(), *e.tokenizer().eos());
  EXPECT_EQ(s.trained_tokens(), s.length() - 1);
  const Encoder llama(tiny("tiny-llama3"), std::nullopt, {.use_chat_template = false, .loss_scale = "all"});
  EXPECT_EQ(llama.encode(row_of(R"({"text":"once upon"})")).at(0).ids.front(), *llama.tokenizer().bos());
  const Encoder answers(tiny(), std::nullopt, {.use_chat_template = false});
  EXPECT_EQ(shown(answers, R"({"query":"2+2=","response":"4"})"),
            "2+2=[4" + e.tokenizer().special_token("eos_token") + "]");
}

TEST(LossScales, StretchesOfAnAnswer) {
  const auto weights = [](const std::string& scale, const std::string& answer) {
    std::string out;
    for (const auto& s : LossScale::parse(scale).stretches(answer))
      out += str(answer.substr(s.begin, s.end - s.begin), "=", s.weight, ";");
    return out;
  };
  EXPECT_EQ(weights("ignore_empty_think", "<think>\n\n</think>\n\nx"), "<think>\n\n</think>\n\n=0;x=1;");
  EXPECT_EQ(weights("ignore_empty_think", "x <think></think>"), "x <think></think>=1;");  // only at the beginning
  EXPECT_EQ(weights("ignore_think_prefix", "<think>\nhm\n</think>\n\nx"), "<think>\n=0;hm\n</think>\n\nx=1;");
  EXPECT_EQ(weights("default+hermes", "a<tool_call>\n{}\n</tool_call>b"), "a=1;<tool_call>\n{}\n</tool_call>=2;b=1;");
  EXPECT_EQ(weights("react", "Thought: t Action: a Observation: o"), "Thought: t =1;Action: a Observation:=2; o=0;");
  EXPECT_EQ(weights("alpha_umi", "Thought: t Next: n Action: a"), "Thought: t =1;Next: n Action: a=2;");
  EXPECT_EQ(weights("agentflan", "Thought: t Action: a Final Answer: f"),
            "Thought: t Action:=1; a =3;Final Answer: f=1;");
  EXPECT_EQ(weights("agentflan", "Name: n Action Input: {}"), "Name:=1; n =3;Action Input:=1; {}=3;");
  TemporaryFolder dir;
  const std::string file = dir.write("w.json", R"({"[0-9]+": [3], "b": [0.5]})").string();
  EXPECT_EQ(weights("last_round+" + file, "a12b"), "a=1;12=3;b=0.5;");
  EXPECT_EQ(weights("hermes+" + file, "1<tool_call>2</tool_call>"), "1=3;<tool_call>=2;2=6;</tool_call>=2;");
  // A table reads the stretches that the one before it made: no call stands in one of these.
  EXPECT_EQ(weights(file + "+hermes", "1<tool_call>2</tool_call>"), "1=3;<tool_call>=1;2=3;</tool_call>=1;");
  EXPECT_FALSE(LossScale::parse("hermes").binary());
  EXPECT_TRUE(LossScale::parse("last_round+ignore_empty_think").binary());
  EXPECT_THROW(LossScale::parse("nonsense"), Error);
}

TEST(LossScales, AnswersToCertainQuestionsWeighThroughout) {
  const LossScale scale = LossScale::parse("agentflan");
  const auto only = [&](const std::string& question) {
    const auto stretches = scale.stretches("search Action: x", question);
    return stretches.size() == 1 ? stretches[0].weight : -1.0f;
  };
  EXPECT_EQ(only("Well. What is the tool you want to use?"), 3);
  EXPECT_EQ(only("What is the value of city?"), 3);
  EXPECT_EQ(only("What is your thought?"), -1);  // by its words
  TemporaryFolder dir;
  const auto parsed = [&](const char* json) { return LossScale::parse(dir.write("w.json", json).string()); };
  EXPECT_EQ(parsed(R"({"response": {"a": [2]}, "query": {"why": 0}})").stretches("ab", "but why?")[0].weight, 0);
  EXPECT_TRUE(parsed(R"({"response": {"a": [0]}, "query": {"why": [1]}})").binary());
  for (const char* wrong : {R"({"query": {"why": [1]}})", R"({"response": {"a": [2]}, "query": {"why": [1, 2]}})",
                            R"({"response": {"a": [2]}, "query": {"why": 1}, "a": [2]})"})
    EXPECT_THROW(parsed(wrong), Error) << wrong;
}

TEST(Encoder, TheEndOfATurnCountsOneWhateverItsWordsWeigh) {
  const char* const row = R"({"query":"q","response":"Action: a Observation: o"})";
  EXPECT_EQ(weighed(encoder(kPlain, {.loss_scale = "react"}), row), "<2>Action: a Observation:<1><|im_end|>\n");
  const char* const asked = R"({"messages":[{"role":"user","content":"What is the value of x?"},
      {"role":"assistant","content":"Action: a"},{"role":"user","content":"so?"},{"role":"assistant","content":"b"}]})";
  EXPECT_EQ(weighed(encoder(kPlain, {.loss_scale = "agentflan"}), asked), "<3>Action: a<1><|im_end|>\nb<|im_end|>\n");
}

TEST(Encoder, WhatARowSaysGoesBeforeTheTables) {
  const auto row = [](const char* extra) {
    return str(R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"Action: a")", extra, "}]}");
  };
  const Encoder e = encoder(kPlain, {.loss_scale = "react"});
  EXPECT_EQ(weighed(e, row(R"(,"loss":true)")), "<2>Action: a<1><|im_end|>\n");
  EXPECT_EQ(weighed(e, row(R"(,"loss_scale":0.5)")), "<0.5>Action: a<1><|im_end|>\n");
}

TEST(Encoder, WeightsFollowTheTokens) {
  const Encoder e = encoder(kPlain, {.loss_scale = "hermes"});
  const Sample s = e.encode(row_of(R"({"query":"q","response":"ab <tool_call>\n{}\n</tool_call>"})")).at(0);
  ASSERT_EQ(s.weights.size(), s.ids.size());
  std::string heavy;
  for (size_t i = 0; i < s.ids.size(); ++i)
    if (s.weights[i] == 2.0f) heavy += e.tokenizer().token_bytes(s.ids[i]);
  EXPECT_EQ(heavy, "<tool_call>\n{}\n</tool_call>");
}

TEST(Encoder, DumpOfTheFirstSample) {
  const Encoder e = encoder(kPlain);
  const std::string dump = sample_dump(e.encode(row_of(R"({"query":"hi","response":"hello"})")).at(0), e.tokenizer());
  EXPECT_NE(dump.find("[INPUT] <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n"),
            std::string::npos)
      << dump;
  EXPECT_NE(dump.find("[LABELS] [-100 * "), std::string::npos) << dump;
  EXPECT_NE(dump.find("]hello<|im_end|>\n"), std::string::npos) << dump;
}

std::vector<Json> lines_of(const fs::path& path) {
  std::vector<Json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

TEST(EncoderGolden, GenerationBlocksGiveTheMasksOfTransformers) {
  if (golden().empty()) GTEST_SKIP() << "APUS_GOLDEN is not set: the chat templates of other projects are not here";
  std::map<std::string, Json> conversations, cases;
  for (auto& c : lines_of(golden() / "chat/conversations.jsonl")) conversations[c["id"]] = c;
  for (auto& c : lines_of(golden() / "chat/masks.jsonl")) cases[c["id"]] = c;
  const auto tokenizer = tiny();
  int compared = 0;
  for (const auto& wanted : lines_of(golden() / "chat/mask_tokens.jsonl")) {
    if (!wanted.contains("tiny-qwen3")) continue;
    const Json& c = cases.at(wanted["case"]);
    const Json& conversation = conversations.at(c["conv"]);
    const ChatTemplate chat =
        ChatTemplate::from_text(read_file(golden() / "templates" / c["template"].get<std::string>()), c["template"]);
    EncodeOptions options;
    options.chat_template_kwargs = c["kwargs"];
    options.ignore_empty_think = false;
    const Encoder e(tokenizer, chat, options);
    Row row{{{"messages", Json::array()}}, {std::make_shared<const std::string>("golden"), 1, false}};
    DialogueOptions d{.kwargs = c["kwargs"]};
    const Dialogue dialogue = rendered_dialogue(chat, conversation["messages"],
                                                conversation.contains("tools") ? &conversation["tools"] : nullptr, d);
    EXPECT_EQ(dialogue.text, c["expected"].get<std::string>()) << wanted["case"];
    // More blocks than turns: not told apart.
    if (dialogue.turns.empty() && !wanted["tiny-qwen3"]["runs"].empty()) continue;
    Sample sample;
    sample.ids.clear();
    std::vector<uint8_t> mask;
    for (const auto& piece : tokenizer->encode_offsets(dialogue.text)) {
      bool inside = false;
      for (const auto& turn : dialogue.turns) inside = inside || (piece.begin < turn.end && piece.end > turn.begin);
      mask.push_back(inside);
    }
    ASSERT_EQ(mask.size(), wanted["tiny-qwen3"]["n"].get<size_t>());
    std::vector<uint8_t> expected(mask.size(), 0);
    for (const auto& run : wanted["tiny-qwen3"]["runs"])
      for (size_t i = run[0]; i < run[1].get<size_t>(); ++i) expected[i] = 1;
    EXPECT_EQ(mask, expected) << wanted["case"];
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

// Turn by turn: the texts and turns of templates whose ends of turns differ in kind.
TEST(EncoderGolden, TurnsOfRealTemplates) {
  if (golden().empty()) GTEST_SKIP() << "APUS_GOLDEN is not set: the chat templates of other projects are not here";
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"phi3.jinja",
       "<|user|>\nq1<|end|>\n<|assistant|>\n[a1<|end|>\n]<|user|>\nq2<|end|>\n<|assistant|>\n[a2<|end|>\n</s>]"},
      {"Qwen-Qwen3-0.6B.jinja",
       "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</"
       "think>\n\na1<|im_end|>\n]<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n[<think>\n\n</"
       "think>\n\na2<|im_end|>\n]"},
      {"mistralai-Mistral-Nemo-Instruct-2407.jinja", "<s>[INST]q1[/INST][a1</s>][INST]q2[/INST][a2</s>]"},
      {"GLM-4.6.jinja",
       "[gMASK]<sop><|user|>\nq1/nothink<|assistant|>\n<think></think>[\na1<|user|>]\nq2/"
       "nothink<|assistant|>\n<think></think>[\na2</s>]"},
  };
  for (const auto& [name, wanted] : cases) {
    const ChatTemplate chat = ChatTemplate::from_text(read_file(golden() / "templates" / name), name);
    const Json messages = Json::parse(
        R"([{"role":"user","content":"q1"},{"role":"assistant","content":"a1"},{"role":"user","content":"q2"},{"role":"assistant","content":"a2"}])");
    DialogueOptions options{.kwargs = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, .eos = "</s>"};
    options.is_mark = [](const std::string& text) { return text.find('<') != std::string::npos; };
    const Dialogue d = compose_dialogue(chat, messages, nullptr, false, options);
    std::string text = d.text;
    for (size_t i = d.turns.size(); i-- > 0;) text.insert(d.turns[i].end, "]").insert(d.turns[i].begin, "[");
    EXPECT_EQ(text, wanted) << name;
  }
}

// Harmony's thoughts are messages of a channel, and learnt as such.
TEST(EncoderGolden, ThoughtsGoToTheirChannel) {
  if (golden().empty()) GTEST_SKIP() << "APUS_GOLDEN is not set: the chat templates of other projects are not here";
  const ChatTemplate chat = ChatTemplate::from_text(read_file(golden() / "templates/gptoss.jinja"), "gptoss");
  const Json messages = Json::parse(
      R"([{"role":"user","content":"q1"},{"role":"assistant","content":"<think>\nt1\n</think>\n\na1"},
          {"role":"user","content":"q2"},{"role":"assistant","content":"<think>t2</think>a2"}])");
  DialogueOptions options{.eos = "<|return|>"};
  options.is_mark = [](const std::string& text) { return text.find('<') != std::string::npos; };
  const Dialogue d = compose_dialogue(chat, messages, nullptr, false, options);
  std::string text = d.text;
  for (size_t i = d.turns.size(); i-- > 0;) text.insert(d.turns[i].end, "]").insert(d.turns[i].begin, "[");
  const std::string head = "<|start|>user<|message|>", turn = "<|end|><|start|>assistant",
                    thought = "[<|channel|>analysis<|message|>", said = turn + "<|channel|>final<|message|>";
  EXPECT_EQ(text.substr(text.find(head)), head + "q1" + turn + thought + "t1" + said + "a1<|end|>]" + head + "q2" +
                                              turn + thought + "t2" + said + "a2<|return|>]");
}

// Results stand in the assistant's own message, and are not learnt.
TEST(Encoder, AnAgentLearnsItsCallsAndNotTheirResults) {
  ChatTemplate chat = ChatTemplate::from_text(kPlain, "test");
  chat.use_agent("react_en");
  const Encoder encode(tiny(), chat, {});
  const Json call = {{"role", "tool_call"}, {"content", R"({"name": "f", "arguments": {}})"}};
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}, {"description", "d"}, {"parameters", {}}}}};
  const Row row = row_of(json_text({{"tools", Json::array({tool})},
                                    {"messages", Json::array({{{"role", "user"}, {"content", "q"}},
                                                              call,
                                                              {{"role", "tool_response"}, {"content", "r1"}},
                                                              call,
                                                              {{"role", "tool_response"}, {"content", "r2"}},
                                                              {{"role", "assistant"}, {"content", "Final"}}})}}));
  const std::string text = shown(encode.encode(row)[0], *tiny());
  const size_t at = text.find("<|im_start|>assistant");
  EXPECT_EQ(text.substr(at),
            "<|im_start|>assistant\n[Action: f\nAction Input: {}\nObservation:]r1\n"
            "[Action: f\nAction Input: {}\nObservation:]r2\n[Final<|im_end|>\n]")
      << text;
}

}  // namespace
}  // namespace apus
