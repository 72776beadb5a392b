// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/prompt_media.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace apus {
namespace {

using Media = std::vector<MediaItem>;

TEST(PromptMedia, RefusesSpansThatCannotBe) {
  const std::string longest(128, 'f');
  const std::vector<std::pair<Media, std::string>> bad = {
      {{{"", 0, 1}}, "its digest has 0 characters"},
      {{{longest + "f", 0, 1}}, "its digest has 129 characters"},
      {{{"a", -1, 2}}, "2 tokens from token -1 on do not lie inside the prompt of 10 tokens"},
      {{{"a", 0, 0}}, "0 tokens"},
      {{{"a", 2, -1}}, "-1 tokens"},
      {{{"a", 10, 1}}, "from token 10"},
      {{{"a", 9, 2}}, "2 tokens from token 9"},
      {{{"a", 1, INT64_MAX}}, "do not lie inside"},
      {{{"a", 0, 4}, {"b", 3, 2}}, "media 1 begins at token 3, but the one before it ends at 4"},
      {{{"a", 5, 2}, {"b", 0, 2}}, "media 1 begins at token 0"}};
  for (const auto& [media, why] : bad) {
    try {
      check_media(media, 10);
      ADD_FAILURE() << "taken: " << why;
    } catch (const Error& e) {
      EXPECT_EQ(e.at.fault, Fault::Usage);
      EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
    }
  }
  check_media({}, 10);
  check_media(Media{{longest, 0, 4}, {"b", 4, 6}}, 10);
  // A video's own sound stands among its tokens; nothing else may.
  const auto of = [](MediaType type) { return std::make_shared<MediaContent>(MediaContent{.type = type}); };
  Media mixed = {{{"v", 2, 6}, of(MediaType::Video)}, {{"s", 4, 4}, of(MediaType::Audio)}, {{"i", 8, 2}, nullptr}};
  check_media(mixed, 10);
  mixed[0].content = of(MediaType::Image);
  EXPECT_THROW(check_media(mixed, 10), Error);
}

TEST(PromptMedia, ThoseThatAStretchTouches) {
  const Media media = {{"a", 2, 3}, {"b", 5, 4}, {"c", 12, 1}};
  const auto touched = [&](int64_t begin, int64_t end) {
    std::string digests;
    for (const MediaItem& m : media_touching(media, begin, end)) digests += m.digest;
    return digests;
  };
  EXPECT_EQ(touched(0, 2), "");
  EXPECT_EQ(touched(0, 3), "a");
  EXPECT_EQ(touched(4, 5), "a");
  EXPECT_EQ(touched(4, 6), "ab");
  EXPECT_EQ(touched(5, 9), "b");
  EXPECT_EQ(touched(9, 12), "");
  EXPECT_EQ(touched(0, 20), "abc");
  EXPECT_EQ(touched(13, 20), "");
}

}  // namespace
}  // namespace apus
