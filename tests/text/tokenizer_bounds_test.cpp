// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json that would take memory or time without end is refused when it does.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "tests/refusal.h"
#include "text/tokenizer.h"

namespace apus {
namespace {

std::shared_ptr<const Tokenizer> tokenizer(const Json& normalizer, const Json& pre_tokenizer) {
  const Json json = {{"normalizer", normalizer},
                     {"pre_tokenizer", pre_tokenizer},
                     {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", Json::array()}}}};
  return Tokenizer::from_json(json.dump());
}

void expect_refused(const Tokenizer& t, const std::string& text, const std::string& word) {
  const Stopwatch watch;
  test::expect_says(test::refusal(Fault::Data, [&] { t.encode(text); }), word);
  EXPECT_LT(watch.seconds(), 60);
}

TEST(TokenizerBounds, ReplacementsThatGrowWithoutEnd) {
  Json steps = Json::array();
  for (int i = 0; i < 60; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  const auto t = tokenizer({{"type", "Sequence"}, {"normalizers", steps}}, nullptr);
  expect_refused(*t, "a", "normalizer");
  EXPECT_EQ(t->encode("b").size(), 1u);
}

TEST(TokenizerBounds, APatternThatBacktracksAtEveryPlace) {
  const auto t =
      tokenizer(nullptr, {{"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+$"}}}, {"behavior", "Isolated"}});
  expect_refused(*t, std::string(3000, 'a') + "b", "pattern");
  EXPECT_EQ(t->encode("aaa").size(), 3u);
}

TEST(TokenizerBounds, LongTextsMayGrowAsNormalFormsDo) {
  std::string ligatures;
  for (int i = 0; i < 20000; ++i) ligatures += "\uFDFA";  // 3 bytes each, 33 under NFKC
  const auto t = tokenizer({{"type", "NFKC"}}, nullptr);
  EXPECT_EQ(t->normalize(ligatures).size(), 33u * 20000);
}

}  // namespace
}  // namespace apus
