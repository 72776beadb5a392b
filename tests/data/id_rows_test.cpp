// SPDX-License-Identifier: Apache-2.0
// Rows that are token ids already.
#include "data/encode/id_rows.h"

#include "data/rows/normalize.h"
#include "tests/data/data_test_tools.h"

namespace apus {
namespace {

Row third_row(const char* text) {
  return {Json::parse(text), {.file = std::make_shared<const std::string>("rows.jsonl"), .line = 3}};
}

std::string ids_error(const char* text, const EncodeOptions& options = {}) {
  return error_of([&] { sample_of_ids(third_row(text), "", options); });
}

TEST(IdRows, AreUsedAsTheyAre) {
  const Row row = third_row(R"({"input_ids": [5, 6, 7, 8], "labels": [5, -100, 7, 8], "label": true})");
  for (const auto& [name, value] : row.value.items()) EXPECT_EQ(normalize_row(row, {})[name], value);
  const Sample sample = sample_of_ids(row, "", {});
  EXPECT_EQ(sample.ids, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(sample.trained, (std::vector<uint8_t>{0, 0, 1, 1}));
  EXPECT_EQ(sample_of_ids(third_row(R"({"input_ids": [5, 6, 7]})"), "", {}).trained, (std::vector<uint8_t>{0, 1, 1}));

  const Row pair =
      third_row(R"({"chosen_input_ids": [1, 2], "chosen_labels": [-100, 2], "rejected_input_ids": [1, 3]})");
  EXPECT_EQ(normalize_row(pair, {}), pair.value);
  EXPECT_TRUE(has_ids(pair, "chosen_"));
  EXPECT_FALSE(has_ids(pair, ""));
  EXPECT_EQ(sample_of_ids(pair, "rejected_", {}).ids, (std::vector<int32_t>{1, 3}));
}

TEST(IdRows, AreRefusedWithPlaceAndReason) {
  EXPECT_EQ(ids_error(R"({"labels": [1]})"), "rows.jsonl, line 3, key 'input_ids': a list of token ids is wanted here");
  EXPECT_NE(ids_error(R"({"input_ids": [1, 2.5]})").find("not 2.5"), std::string::npos);
  EXPECT_NE(ids_error(R"({"input_ids": [1]})").find("at least two"), std::string::npos);
  EXPECT_NE(ids_error(R"({"input_ids": [1, 2], "labels": [1]})").find("1 entries for 2 ids"), std::string::npos);
  EXPECT_NE(ids_error(R"({"input_ids": [1, -2]})").find("entry 1 is -2"), std::string::npos);
  EXPECT_NE(ids_error(R"({"input_ids": [1, 9]})", {.vocabulary = 9}).find("0 to 8"), std::string::npos);
  EXPECT_NE(ids_error(R"({"input_ids": [1, 2], "labels": [-100, 3]})").find("a label is the token itself"),
            std::string::npos);
  EXPECT_NE(ids_error(R"({"input_ids": [1, 2, 3]})", {.max_length = 2}).find("--max_length"), std::string::npos);
  EXPECT_NE(ids_error(R"({"input_ids": [99999999999, 2]})").find("entry 0"), std::string::npos);
}

}  // namespace
}  // namespace apus
