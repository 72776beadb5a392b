// SPDX-License-Identifier: Apache-2.0
// From rows of preferences to samples.
#include "algos/dpo.h"
#include "algos/kto.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

struct World {
  std::filesystem::path dir = test::source_dir() / "examples/island";
  Encoder encoder{Tokenizer::load(dir), ChatTemplate::load(dir), {.max_length = 40, .loss_scale = "last_round"}};
  Row row(const char* text) const {
    return {Json::parse(text), {.file = std::make_shared<const std::string>("pairs.jsonl"), .line = 7}};
  }
  std::string learnt(const Sample& sample) const {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < sample.ids.size(); ++i)
      if (sample.trained[i]) ids.push_back(sample.ids[i]);
    return encoder.tokenizer().decode(ids);
  }
};

TEST(PairRows, AreTwoSamplesOfOneGroup) {
  const World w;
  const Samples pair = Dpo({}).encode(w.row(R"({"messages": [{"role": "user", "content": "Where is the home of Ralph?"},
                             {"role": "assistant", "content": "The home of Ralph is London."}],
                "rejected_messages": [{"role": "user", "content": "Where is the home of Ralph?"},
                                      {"role": "assistant", "content": "The home of Ralph is Rome."}], "margin": 0.5})"),
                                      w.encoder);
  ASSERT_EQ(pair.size(), 2u);
  EXPECT_FALSE(pair[0].grouped);
  EXPECT_TRUE(pair[1].grouped);
  EXPECT_NE(w.learnt(pair[0]).find("is London."), std::string::npos) << w.learnt(pair[0]);
  EXPECT_NE(w.learnt(pair[1]).find("is Rome."), std::string::npos) << w.learnt(pair[1]);
  EXPECT_EQ(w.learnt(pair[1]).find("Where"), std::string::npos);
  EXPECT_EQ(pair[0].columns.at("margin"), 0.5f);
}

TEST(PairRows, OfIds) {
  const World w;
  const Samples pair = Dpo({}).encode(w.row(R"({"chosen_input_ids": [1, 2, 3], "chosen_labels": [-100, -100, 3],
                                               "rejected_input_ids": [1, 2, 4], "rejected_labels": [-100, -100, 4]})"),
                                      w.encoder);
  ASSERT_EQ(pair.size(), 2u);
  EXPECT_EQ(pair[1].ids, (std::vector<int32_t>{1, 2, 4}));
  EXPECT_TRUE(pair[1].grouped);
  EXPECT_EQ(pair[0].trained, (std::vector<uint8_t>{0, 0, 1}));
}

TEST(PairRows, AreRefusedWithPlaceAndReason) {
  const World w;
  const auto says = [&](const char* text, const char* part) {
    test::expect_says(test::refusal(Fault::Data, [&] { Dpo({}).encode(w.row(text), w.encoder); }), part);
  };
  says(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
       "pairs.jsonl, line 7, key 'rejected_response': the row has no rejected answer");
  says(R"({"chosen_input_ids": [1, 2], "rejected_input_ids": [1, 2]})", "the same as the chosen one");
  says(R"({"chosen_input_ids": [1, 2], "rejected_input_ids": [1, 3], "rejected_labels": [-100, -100]})",
       "no token that counts");
  says(R"({"chosen_input_ids": [1, 2]})", "rejected_input_ids");
}

TEST(JudgedRows, HaveALabel) {
  const World w;
  const Samples one = Kto({}).encode(w.row(R"({"input_ids": [1, 2, 3], "label": true})"), w.encoder);
  EXPECT_EQ(one.at(0).columns.at("label"), 1);
  const auto says = [&](const char* text, const char* part) {
    test::expect_says(test::refusal(Fault::Data, [&] { Kto({}).encode(w.row(text), w.encoder); }), part);
  };
  says(R"({"input_ids": [1, 2, 3]})", "true for a good answer");
  says(R"({"input_ids": [1, 2, 3], "label": 2})", "kto's labels are true and false");
}

}  // namespace
}  // namespace apus
