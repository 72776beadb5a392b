// SPDX-License-Identifier: Apache-2.0
#include "base/line_editor.h"

#include <gtest/gtest.h>

namespace apus {
namespace {

using Result = EditBuffer::Result;

std::string typed(std::string_view keys, const std::vector<std::string>& history = {}) {
  EditBuffer b(history);
  b.feed(keys);
  return b.text();
}

TEST(EditBuffer, TypesAndMoves) {
  EXPECT_EQ(typed("hello"), "hello");
  EXPECT_EQ(typed("hllo\x1b[D\x1b[D\x1b[D"
                  "e"),
            "hello");
  EXPECT_EQ(typed("ello\x1b[Hh\x1b[F!"), "hello!");
  EXPECT_EQ(typed("ello\x01h\x05!"), "hello!");
  EXPECT_EQ(typed("b\x1b[Da\x1b[C"
                  "c"),
            "abc");
  EXPECT_EQ(typed("\x1b[D\x1b[D"
                  "a\x1b[C\x1b[C"
                  "b"),
            "ab")
      << "beyond the ends nothing happens";
}

TEST(EditBuffer, Erases) {
  EXPECT_EQ(typed("ab\x7f"
                  "c"),
            "ac");
  EXPECT_EQ(typed("\x7f\x7f"
                  "a"),
            "a");
  EXPECT_EQ(typed("abc\x01\x1b[3~"), "bc");
  EXPECT_EQ(typed("abc def\x17"
                  "x"),
            "abc x");
  EXPECT_EQ(typed("abc\x1b[D\x0b"), "ab");
  EXPECT_EQ(typed("abc\x1b[D\x15"), "c");
}

TEST(EditBuffer, WholeCharacters) {
  EXPECT_EQ(typed("a\u4f60\u597d\x7f"), "a\u4f60");
  EXPECT_EQ(typed("\u4f60\u597d\x1b[D\x1b[D"
                  "a"),
            "a\u4f60\u597d");
  std::vector<std::string> none;
  EditBuffer b(none);
  for (const char c : std::string("\u00e9\u4f60")) b.feed({&c, 1});  // byte by byte, as a slow line gives them
  EXPECT_EQ(b.text(), "\u00e9\u4f60");
}

TEST(EditBuffer, History) {
  const std::vector<std::string> history{"one", "two"};
  EXPECT_EQ(typed("\x1b[A", history), "two");
  EXPECT_EQ(typed("\x1b[A\x1b[A\x1b[A", history), "one");
  EXPECT_EQ(typed("mine\x1b[A\x1b[B", history), "mine") << "the line itself comes back";
  EXPECT_EQ(typed("\x1b[A!", history), "two!");
  EXPECT_EQ(typed("\x1b[B"
                  "a",
                  history),
            "a");
}

TEST(EditBuffer, Ends) {
  const std::vector<std::string> none;
  EXPECT_EQ(EditBuffer(none).feed("abc\r"), Result::Done);
  EXPECT_EQ(EditBuffer(none).feed("\x04"), Result::End);
  EXPECT_EQ(EditBuffer(none).feed("a\x03"), Result::End);
  EditBuffer b(none);
  EXPECT_EQ(b.feed("ab\x01\x04"), Result::Going);
  EXPECT_EQ(b.text(), "b");
  EXPECT_EQ(b.feed("\x1b[99;5X\x1bq\x02\x06z"), Result::Going) << "unknown keys are passed over";
}

TEST(EditBuffer, PictureFitsItsColumns) {
  const std::vector<std::string> none;
  EditBuffer b(none);
  b.feed("0123456789");
  EXPECT_EQ(b.picture(80).text, "0123456789");
  EXPECT_EQ(b.picture(80).cursor, 10);
  EXPECT_EQ(b.picture(6).text, "56789");
  EXPECT_EQ(b.picture(6).cursor, 5);
  b.feed("\x01");
  EXPECT_EQ(b.picture(6).text, "01234");
  EXPECT_EQ(b.picture(6).cursor, 0);
  EditBuffer wide(none);
  wide.feed("\u4f60\u597d\u4f60\u597d");
  EXPECT_EQ(wide.picture(6).text, "\u4f60\u597d");
  EXPECT_EQ(wide.picture(6).cursor, 4);
  EditBuffer tabs(none);
  tabs.feed("a\tb");
  EXPECT_EQ(tabs.picture(80).text, "a b") << "a tab would move the terminal's cursor elsewhere";
  EXPECT_EQ(tabs.picture(80).cursor, 3);
  EXPECT_EQ(tabs.text(), "a\tb");
}

// Pasted: drawn for every block that arrives, so a picture may not look at all of the line.
TEST(EditBuffer, ALongLineIsDrawnAtOnce) {
  const std::vector<std::string> none;
  EditBuffer b(none);
  for (int i = 0; i < 4000; ++i) {  // 1 MB in blocks of a terminal's read
    b.feed(std::string(250, 'x'));
    ASSERT_EQ(b.picture(80).cursor, 79);
  }
  EXPECT_EQ(b.text().size(), 1'000'000u);
}

TEST(EditBuffer, Columns) {
  EXPECT_EQ(text_columns("abc"), 3);
  EXPECT_EQ(text_columns("\u4f60a"), 3);
  EXPECT_EQ(text_columns("e\u0301"), 1);
}

}  // namespace
}  // namespace apus
