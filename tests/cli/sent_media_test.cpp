// SPDX-License-Identifier: Apache-2.0
#include "cli/sent_media.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/folder.h"
#include "tests/refusal.h"

namespace apus {
namespace {

TEST(SentMedia, TagsBecomePartsInTheirOrder) {
  const test::Folder folder;
  const std::string picture = folder.path / "a.png", sound = folder.path / "b.wav";
  write_file_atomic(picture, "\x89PNG\r\n\x1a\n");
  write_file_atomic(sound, "RIFF....WAVEfmt ");
  const Json row = {{"messages",
                     {{{"role", "system"}, {"content", "plain"}},
                      {{"role", "user"}, {"content", "<image>first, <audio> then <image>"}},
                      {{"role", "user"}, {"content", "<video>"}}}},
                    {"images", {picture, "https://host/c.jpg"}},
                    {"audios", {sound}},
                    {"videos", Json::array({Json::array({"https://host/1.png", picture})})}};
  const Json sent = sent_messages(row);
  EXPECT_EQ(sent[0]["content"], "plain");
  const Json& parts = sent[1]["content"];
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_EQ(parts[0], (Json{{"type", "image_url"}, {"image_url", {{"url", "data:image/png;base64,iVBORw0KGgo="}}}}));
  EXPECT_EQ(parts[1], (Json{{"type", "text"}, {"text", "first, "}}));
  EXPECT_EQ(parts[2]["type"], "input_audio");
  EXPECT_EQ(parts[2]["input_audio"]["format"], "wav");
  EXPECT_EQ(parts[3], (Json{{"type", "text"}, {"text", " then "}}));
  EXPECT_EQ(parts[4], (Json{{"type", "image_url"}, {"image_url", {{"url", "https://host/c.jpg"}}}}));
  EXPECT_EQ(sent[2]["content"][0]["video"].size(), 2U);
  const Json text = {{"messages", {{{"role", "user"}, {"content", "no <image> here"}}}}};
  EXPECT_EQ(sent_messages(text), text["messages"]);  // it has none
  Json lost = row;
  lost["images"][0] = (folder.path / "none.png").string();
  test::refusal(Fault::Data, [&] { sent_messages(lost); });
}

}  // namespace
}  // namespace apus
