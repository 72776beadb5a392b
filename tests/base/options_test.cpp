// SPDX-License-Identifier: Apache-2.0
#include "base/options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/config_file.h"
#include "base/error.h"
#include "tests/refusal.h"

namespace apus {
namespace {

struct Sample {
  bool packing = false;
  std::optional<bool> stream;
  int64_t seed = 42;
  std::optional<int64_t> max_length;
  double learning_rate = 1e-4;
  std::optional<double> temperature;
  std::string model, tuner_type = "lora";
  std::optional<std::string> system;
  std::vector<std::string> dataset;
  std::vector<double> interleave_prob;
  Json columns;
  bool ignore_args_error = false;
  std::string max_pixels;

  template <class V>
  void fields(V& v) {
    v.group("Model");
    v("model", model, "folder of the model").required().alias("ckpt_dir", "old spelling");
    v("tuner_type", tuner_type, "what is trained").choices({"lora", "full"}).alias("train_type", "renamed");
    v.group("Data");
    v("dataset", dataset, "rows");
    v("interleave_prob", interleave_prob, "shares").at_least(0).at_most(1);
    v("columns", columns, "renaming");
    v("packing", packing, "fill sequences");
    v("stream", stream, "show at once");
    v.group("Numbers");
    v("seed", seed, "of everything");
    v("max_length", max_length, "tokens").at_least(1);
    v("learning_rate", learning_rate, "step size").above(0);
    v("temperature", temperature, "0 is greedy").at_least(0);
    v("system", system, "prompt");
    v("ignore_args_error", ignore_args_error, "").forgives_unknown();
    v("max_pixels", max_pixels, "").refused("text only; leave it out");
    v.no_effect({"attn_impl"}, "always fused");
    v.refuse({"use_ray", "ray_exp_name"}, "no Ray");
    v.refuse({"tensor_parallel"}, "one device", "1");
  }
};

struct Parsed : Sample {
  explicit Parsed(std::vector<std::string> arguments) : table(OptionTable::of<Sample>(*this)) {
    table.parse(arguments);
  }
  Parsed(const Parsed&) = delete;
  OptionTable table;
};

std::string failure(std::vector<std::string> arguments) {
  return test::refusal(Fault::Usage, [&] { Parsed parsed(std::move(arguments)); });
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string temp_file(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + "apus-options-" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(Options, WhatIsRefusedMayBeSwitchedOff) {
  const Parsed p({"--model", "m", "--use_ray", "false", "--ray_exp_name", "none", "--tensor_parallel", "1"});
  EXPECT_TRUE(p.table.notes.empty());
  EXPECT_TRUE(
      has(failure({"--model", "m", "--tensor_parallel", "2"}), "--tensor_parallel is not possible: one device"));
  EXPECT_TRUE(has(failure({"--model", "m", "--use_ray"}), "--use_ray is not possible"));
}

TEST(Options, EveryTypeInBothSpellings) {
  const Parsed p({"--model", "a b", "--seed=-7", "--max_length", "12", "--learning_rate", "3e-5", "--temperature=0.5",
                  "--system", "-x", "--dataset", "a.jsonl", "b.jsonl#5", "--interleave_prob", "0.25", ".75",
                  "--columns", R"({"a": "b"})"});
  EXPECT_EQ(p.model, "a b");
  EXPECT_EQ(p.seed, -7);
  EXPECT_EQ(p.max_length, 12);
  EXPECT_DOUBLE_EQ(p.learning_rate, 3e-5);
  EXPECT_DOUBLE_EQ(p.temperature.value(), 0.5);
  EXPECT_EQ(p.system, "-x");
  EXPECT_EQ(p.dataset, (std::vector<std::string>{"a.jsonl", "b.jsonl#5"}));
  EXPECT_EQ(p.interleave_prob, (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(p.columns["a"], "b");
  EXPECT_TRUE(p.table.given("seed"));
  EXPECT_FALSE(p.table.given("stream"));
}

TEST(Options, BooleansWithAndWithoutValue) {
  EXPECT_TRUE(Parsed({"--model", "m", "--packing"}).packing);
  EXPECT_TRUE(Parsed({"--packing", "--model", "m"}).packing);
  EXPECT_TRUE(Parsed({"--packing", "True", "--model", "m"}).packing);
  EXPECT_FALSE(Parsed({"--packing=no", "--model", "m"}).packing);
  EXPECT_EQ(Parsed({"--stream", "off", "--model", "m"}).stream, false);
  EXPECT_EQ(Parsed({"--stream", "none", "--model", "m"}).stream, std::nullopt);
  EXPECT_TRUE(has(failure({"--model", "m", "--packing", "perhaps"}), "--packing: 'perhaps' is neither true nor false"));
}

TEST(Options, TheLastWordCounts) {
  const Parsed p({"--model", "a", "--dataset", "x", "y", "--model", "b", "--dataset", "z"});
  EXPECT_EQ(p.model, "b");
  EXPECT_EQ(p.dataset, std::vector<std::string>{"z"});
}

TEST(Options, PrefixesHyphensAndAliases) {
  EXPECT_EQ(Parsed({"--mod", "m", "--temp", "1", "--max-len", "3"}).max_length, 3);
  const Parsed p({"--ckpt_dir", "m", "--train_type", "full"});
  EXPECT_EQ(p.model, "m");
  EXPECT_EQ(p.tuner_type, "full");
  ASSERT_EQ(p.table.notes.size(), 2u);
  EXPECT_EQ(p.table.notes[0], "--ckpt_dir is read as --model: old spelling");
  EXPECT_TRUE(has(failure({"--ma", "m"}), "--ma may mean any of --max_length, --max_pixels"));
}

TEST(Options, AllMistakesInOneMessage) {
  const std::string text = failure({"--modle",
                                    "x",
                                    "y",
                                    "--seed",
                                    "1.5",
                                    "--tuner_type",
                                    "lroa",
                                    "--learning_rate",
                                    "0",
                                    "--temperature",
                                    "-1",
                                    "--max_length",
                                    "99999999999999999999",
                                    "--interleave_prob",
                                    "0.1",
                                    "two",
                                    "--columns",
                                    "{",
                                    "--use_ray",
                                    "true",
                                    "--max_pixels",
                                    "5",
                                    "--dataset"});
  for (const char* part :
       {"--modle is no option here; did you mean --model?", "--seed: '1.5' is not a whole number", "did you mean lora?",
        "--learning_rate: 0 must be above 0", "--temperature: -1 must be at least 0", "is beyond 64 bits",
        "--interleave_prob: 'two' is not a number", "--columns: '{' is no JSON: unexpected end of input",
        "--use_ray is not possible: no Ray", "--max_pixels is not possible: text only; leave it out",
        "--dataset: a value is missing", "--model is needed"}) {
    EXPECT_TRUE(has(text, part)) << part << "\n in \n" << text;
  }
  EXPECT_TRUE(text.starts_with("12 options are wrong:")) << text;
}

TEST(Options, StrayWordsAreNamed) {
  EXPECT_TRUE(has(failure({"sft", "--model", "m"}), "'sft' belongs to no option"));
  EXPECT_TRUE(has(failure({"--model", "m", "n"}), "'n' belongs to no option"));
  EXPECT_TRUE(has(failure({"--model", "m", "--seed", "1", "2"}), "'2' belongs to no option"));
}

TEST(Options, UnknownFlagsCanBeForgiven) {
  const Parsed p({"--model", "m", "--nonsense", "1", "2", "--ignore_args_error", "true"});
  ASSERT_EQ(p.table.notes.size(), 1u);
  EXPECT_TRUE(has(p.table.notes[0], "--nonsense is no option here"));
}

TEST(Options, FlagsWithoutEffectAreNoted) {
  const Parsed p({"--attn_impl", "flash_attn", "--model", "m"});
  ASSERT_EQ(p.table.notes.size(), 1u);
  EXPECT_EQ(p.table.notes[0], "--attn_impl has no effect: always fused");
}

TEST(Options, JsonFromTextFileAndNearMisses) {
  const std::string path = temp_file("columns.json", R"({"query": "q", "n": 1.0})");
  EXPECT_EQ(Parsed({"--model", "m", "--columns", path}).columns["query"], "q");
  const Parsed p({"--model", "m", "--columns", "{'a': True, b: None, 0: \"20GB\", \"it's\": ['x', 1e3,],}"});
  EXPECT_EQ(p.columns.dump(), R"({"a":true,"b":null,"0":"20GB","it's":["x",1000.0]})");
  EXPECT_TRUE(has(failure({"--model", "m", "--columns", "nowhere.json"}), "neither JSON text nor a JSON file"));
  EXPECT_TRUE(has(failure({"--model", "m", "--columns", R"({"a" "b"})"}),
                  R"(--columns: no JSON: at character 8, behind '{"a" "b': unexpected string literal; expected ':')"));
  EXPECT_TRUE(has(failure({"--model", "m", "--columns", std::string(5000, '[')}), "nested more than"));
}

TEST(Options, AListMayBeOneJsonArray) {
  EXPECT_EQ(Parsed({"--model", "m", "--dataset", R"(["a b", "c"])"}).dataset, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(Parsed({"--model", "m", "--interleave_prob", "[0.5, 0.5]"}).interleave_prob.size(), 2u);
}

TEST(Options, YamlFileWithEnvironmentAndOverrides) {
  ::unsetenv("APUS_TEST_NEW");
  ::setenv("APUS_TEST_OLD", "kept", 1);
  const std::string path = temp_file("run.yaml", R"(
ENV:
  APUS_TEST_NEW: 0123
  APUS_TEST_OLD: changed
model: /m      # a comment
dataset: [a.jsonl, 'b c.jsonl']
interleave_prob: [0.25, 0.75]
system: 1.10
temperature: null
packing: yes
seed: 7
max_length: ~
columns: {a: b, deep: {n: 1, s: "1", list: [true, null]}}
learning_rate: 1e-5
)");
  const Parsed p({path, "--seed", "8"});
  EXPECT_STREQ(std::getenv("APUS_TEST_NEW"), "0123");
  EXPECT_STREQ(std::getenv("APUS_TEST_OLD"), "kept");
  EXPECT_EQ(p.table.notes.size(), 1u);
  EXPECT_EQ(p.model, "/m");
  EXPECT_EQ(p.dataset, (std::vector<std::string>{"a.jsonl", "b c.jsonl"}));
  EXPECT_EQ(p.interleave_prob, (std::vector<double>{0.25, 0.75}));
  EXPECT_EQ(p.system, "1.10") << "text options keep what was written";
  EXPECT_FALSE(p.table.given("temperature"));
  EXPECT_FALSE(p.max_length.has_value());
  EXPECT_TRUE(p.packing);
  EXPECT_EQ(p.seed, 8);
  EXPECT_DOUBLE_EQ(p.learning_rate, 1e-5);
  EXPECT_EQ(p.columns.dump(), R"({"a":"b","deep":{"n":1,"s":"1","list":[true,null]}})");
  EXPECT_EQ(p.table.config_file, path);
}

TEST(Options, JsonFileAndItsMistakes) {
  const std::string good =
      temp_file("run.json", R"({"model": "m", "dataset": ["a", 5], "max_length": null, "stream": false})");
  const Parsed p({good});
  EXPECT_EQ(p.dataset, (std::vector<std::string>{"a", "5"}));
  EXPECT_EQ(p.stream, false);
  const std::string bad = temp_file("bad.yaml", "modle: x\nseed: [1, 2]\n");
  const std::string text = failure({bad});
  EXPECT_TRUE(has(text, "--modle is no option here")) << text;
  EXPECT_TRUE(has(text, "--seed: one value is needed, 2 are given")) << text;
  EXPECT_TRUE(has(failure({temp_file("broken.yaml", "a: [1\nb: }")}), "not valid YAML"));
  EXPECT_TRUE(has(failure({temp_file("list.yaml", "- a\n- b\n")}), "a mapping of option names"));
  EXPECT_TRUE(has(failure({temp_file("twice.yaml", "seed: 1\nseed: 2\n")}), "twice"));
  const std::string bomb =
      "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
      "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n";
  EXPECT_TRUE(has(failure({temp_file("bomb.yaml", bomb)}), "too large"));
}

TEST(Options, SetAndJsonRoundTrip) {
  Sample first;
  first.model = "m";
  first.dataset = {"a", "b"};
  first.temperature = 0.5;
  first.columns = Json::parse(R"({"x": [1, 2]})");
  const Json saved = OptionTable::of(first).json();
  Sample second;
  OptionTable table = OptionTable::of(second);
  for (const auto& [name, value] : saved.items()) table.set(name, value);
  table.set("of_another_version", 1);
  EXPECT_EQ(table.json(), saved);
  EXPECT_FALSE(table.given("model")) << "only the user gives";
  EXPECT_FALSE(saved.contains("attn_impl"));
  EXPECT_TRUE(saved["stream"].is_null());
}

TEST(Options, HelpIsCompleteGroupedAndWrapped) {
  Sample sample;
  const std::string help = OptionTable::of(sample).help(80, "all");
  for (const char* part :
       {"Model\n", "Data\n", "Numbers\n", "--model TEXT", "[needed]", "(lora, full)", "also --ckpt_dir", "[0.0001]",
        "--packing true|false", "--dataset TEXT ...", "--columns JSON", "--attn_impl: always fused",
        "--use_ray --ray_exp_name: no Ray", "--max_pixels: text only"}) {
    EXPECT_TRUE(has(help, part)) << part << "\n" << help;
  }
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  // What does not act is counted only, where not all is asked for.
  const std::string acts = OptionTable::of(sample).help(80);
  EXPECT_TRUE(has(acts, "--columns JSON") && has(acts, "--help all lists them")) << acts;
  for (const char* part : {"--attn_impl", "--use_ray", "--max_pixels"}) EXPECT_FALSE(has(acts, part)) << acts;
}

// A struct that holds another one, and options that say of themselves what a resumed or continued run does with them.
struct Inner {
  int64_t rank = 8;
  double dropout = 0;
  void fields(OptionTable& v) {
    v("rank", rank, "of the factors").must_match().restored("model");
    v("dropout", dropout, "share of zeros").noted();
  }
};
struct Outer {
  Inner inner;
  std::vector<std::string> rows;
  void fields(OptionTable& v) {
    v.group("Adapter");
    v.include(inner);
    v("rows", rows, "files").restored("data").must_match();
  }
};

std::vector<std::string> names(const std::vector<const Option*>& options) {
  std::vector<std::string> out;
  for (const Option* option : options) out.push_back(option->name);
  return out;
}

TEST(Options, AHeldStructIsDescribedByItself) {
  Outer outer;
  OptionTable table = OptionTable::of(outer);
  table.parse({"--rank", "4", "--rows", "a", "b"});
  EXPECT_EQ(outer.inner.rank, 4);
  EXPECT_EQ(table.json().dump(), R"({"rank":4,"dropout":0.0,"rows":["a","b"]})");
}

TEST(Options, PropertiesFindTheirOptions) {
  Outer outer;
  const OptionTable table = OptionTable::of(outer);
  EXPECT_EQ(names(table.with(&Option::is_exact)), (std::vector<std::string>{"rank", "rows"}));
  EXPECT_EQ(names(table.with(&Option::is_noted)), (std::vector<std::string>{"dropout"}));
  EXPECT_EQ(names(table.with(&Option::restored_kind, "model")), (std::vector<std::string>{"rank"}));
  EXPECT_EQ(names(table.with(&Option::restored_kind, "data")), (std::vector<std::string>{"rows"}));
}

TEST(Options, ANameDescribedTwiceIsADefect) {
  struct Twice {
    bool a = false, b = false;
    void fields(OptionTable& v) { v("x", a, ""), v("y", b, "").alias("x"); }
  } twice;
  OptionTable table = OptionTable::of(twice);
  test::refusal(Fault::Bug, [&] { table.parse({}); });
}

TEST(ConfigFiles, VariablesOfTheEnvironmentAreFilledIn) {
  ::setenv("APUS_TEST_PLACE", "/here", 1);
  ::unsetenv("APUS_TEST_NOWHERE");
  const auto filled = [](const std::string& text) {
    ConfigEntry entry{"output_dir", text, {text}};
    fill_in_environment(entry, "run.yaml");
    EXPECT_EQ(entry.value, entry.words[0]);
    return entry.words[0];
  };
  EXPECT_EQ(filled("${APUS_TEST_PLACE}/out"), "/here/out");
  EXPECT_EQ(filled("$APUS_TEST_PLACE/out"), "/here/out");
  EXPECT_EQ(filled("costs $5, $$APUS_TEST_PLACE, $APUS_TEST_NOWHERE$"),
            "costs $5, $APUS_TEST_PLACE, $APUS_TEST_NOWHERE$");
  EXPECT_THROW(filled("${APUS_TEST_NOWHERE}"), Error);
}

}  // namespace
}  // namespace apus
