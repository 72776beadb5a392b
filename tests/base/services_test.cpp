// SPDX-License-Identifier: Apache-2.0
// Log, progress, clock, sizes, wrapping, lines, JSON.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/json.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/sizes.h"
#include "base/wrap.h"
#include "tests/refusal.h"

namespace apus {
namespace {

// A descriptor whose text can be read back.
class Captured {
 public:
  Captured() : path_(testing::TempDir() + "apus-captured-XXXXXX"), descriptor_(::mkstemp(path_.data())) {}
  ~Captured() { ::close(descriptor_), std::filesystem::remove(path_); }
  int descriptor() const { return descriptor_; }
  std::string text() const { return read_file(path_); }

 private:
  std::string path_;
  int descriptor_;
};

TEST(LogLines, LevelsRanksAndPrefix) {
  Captured out;
  Log log({.descriptor = out.descriptor(), .level = Level::Info, .rank = 0});
  log.line(Level::Debug, "hidden");
  log.line(Level::Info, "one");
  log.line(Level::Warning, "two");
  Log other({.descriptor = out.descriptor(), .level = Level::Info, .rank = 3});
  other.line(Level::Info, "hidden");
  other.line(Level::Error, "three");
  EXPECT_EQ(out.text(), "[INFO:apus] one\n[WARNING:apus] two\n[ERROR:apus:rank3] three\n");
}

TEST(LogLines, LevelNames) {
  EXPECT_EQ(level_named("warn"), Level::Warning);
  EXPECT_EQ(level_named("10"), Level::Debug);
  EXPECT_EQ(level_named("loud"), std::nullopt);
}

TEST(LogLines, ThreadsDoNotMixLines) {
  Captured out;
  Log log({.descriptor = out.descriptor()});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) log.line(Level::Info, std::string(50, static_cast<char>('a' + t)));
    });
  }
  for (auto& thread : threads) thread.join();
  std::istringstream lines(out.text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_EQ(line.size(), 62u);
    ASSERT_EQ(line.substr(12), std::string(50, line.back()));
  }
  EXPECT_EQ(count, 400);
}

TEST(LogLines, StatusLineStaysBelow) {
  Captured out;
  Log log({.descriptor = out.descriptor(), .terminal = true});
  log.status("50%");
  log.line(Level::Info, "text");
  EXPECT_TRUE(out.text().ends_with("text\n50%"));
  EXPECT_NE(out.text().find("\r\033[K"), std::string::npos);
}

TEST(ProgressBar, RateTimeAndWidth) {
  const ProgressView view{
      .title = "infer", .unit = "row", .note = "", .done = 30, .total = 100, .skipped = 10, .seconds = 10};
  EXPECT_EQ(render(view, 63), "infer  30% |####..........| 30/100 [10.0s < 35.0s, 2.00 row/s]");
  for (const int width : {20, 40, 60, 80, 200}) EXPECT_LE(render(view, width).size(), static_cast<size_t>(width));
  EXPECT_NE(render({.title = "t", .unit = "row", .done = 1, .total = 0, .seconds = 4}, 80).find("4.00 s/row"),
            std::string::npos);
}

TEST(ProgressBar, PlainLinesWithoutTerminal) {
  Captured out;
  Log log({.descriptor = out.descriptor()});
  {
    Progress progress("work", 3, {.unit = "row", .plain_interval_s = 1000}, log);
    progress.advance();
    progress.advance(2);
    EXPECT_EQ(out.text(), "");
  }
  EXPECT_TRUE(out.text().starts_with("[INFO:apus] work 100% |"));
}

TEST(Clock, Texts) {
  EXPECT_EQ(duration_text(3.14), "3.1s");
  EXPECT_EQ(duration_text(245), "4:05");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(std::nan("")), "?");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(3ll << 29), "1.50 GiB");
}

TEST(Sizes, AsPeopleWriteThem) {
  EXPECT_EQ(parse_bytes("5GB", "x"), 5'000'000'000);
  EXPECT_EQ(parse_bytes("1.5 kib", "x"), 1536);
  EXPECT_EQ(parse_bytes("200m", "x"), 200'000'000);
  EXPECT_EQ(parse_bytes("1024", "x"), 1024);
  for (const char* bad : {"", "GB", "-5GB", "5 parsecs", "5KGB", "1e30GB", "nan", "0"})
    EXPECT_THROW(parse_bytes(bad, "x"), Error) << bad;
}

TEST(Wrap, Lines) {
  EXPECT_EQ(wrapped("aa bb cc", 0, 2, 5), "aa bb\n  cc\n");
  EXPECT_EQ(wrapped("incomprehensibility", 1, 2, 5), " incomprehensibility\n");
  EXPECT_EQ(two_columns("--a", "text", 8, 40), "  --a   text\n");
  EXPECT_EQ(two_columns("--long", "text", 8, 40), "  --long\n        text\n");
}

TEST(Lines, ReadsEveryKindOfEnd) {
  const std::string path = testing::TempDir() + "apus-lines";
  write_file_atomic(path, "\xEF\xBB\xBFone\r\n\ntwo\nlast");
  LineReader reader(path);
  std::string line;
  std::vector<std::string> lines;
  while (reader.next(line)) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "two", "last"}));
  EXPECT_EQ(reader.number(), 4);
}

TEST(Lines, LongLinesAcrossBlocksAndTheirLimit) {
  const std::string path = testing::TempDir() + "apus-lines-long", big(700'000, 'x');
  write_file_atomic(path, "a\n" + big + "\nb\n");
  LineReader reader(path);
  std::string line;
  ASSERT_TRUE(reader.next(line) && reader.next(line));
  EXPECT_EQ(line, big);
  ASSERT_TRUE(reader.next(line));
  EXPECT_EQ(line, "b");
  EXPECT_FALSE(reader.next(line));
  LineReader limited(path, 300'000);
  ASSERT_TRUE(limited.next(line));
  EXPECT_THROW(limited.next(line), Error);
  EXPECT_THROW(LineReader("/nowhere/at/all"), Error);
  EXPECT_THROW(LineReader{testing::TempDir()}, Error);
}

TEST(Lines, WritesAppendsAndGoesOn) {
  const std::string path = testing::TempDir() + "apus-lines-out";
  {
    LineWriter writer(path);
    writer.write("one");
    writer.flush();
    EXPECT_EQ(read_file(path), "one\n");
    writer.write("two");
  }
  EXPECT_EQ(read_file(path), "one\ntwo\n");
  std::filesystem::resize_file(path, 6);  // killed in the middle of the second line
  EXPECT_EQ(keep_whole_lines(path), 1);
  LineWriter(path, LineWriter::Mode::Append).write("three");
  EXPECT_EQ(read_file(path), "one\nthree\n");
  EXPECT_EQ(keep_whole_lines(path + ".absent"), 0);
}

// What is there already needs no folder that takes new files: /dev/stdout, a pipe, a file in another's folder.
TEST(Lines, AFileThatIsThereIsWrittenWhateverItsFolder) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  LineWriter(str("/proc/self/fd/", ends[1])).write("one");
  char bytes[8] = {};
  EXPECT_EQ(::read(ends[0], bytes, sizeof bytes), 4);
  EXPECT_STREQ(bytes, "one\n");
  EXPECT_THROW(LineWriter("/proc/self/fd/none"), Error);
  ::close(ends[0]), ::close(ends[1]);
}

TEST(Lines, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  LineWriter writer("/dev/full");
  writer.write("text");
  test::refusal(Fault::Io, [&] { writer.close(); });
}

TEST(JsonText, BoundsAndReasons) {
  EXPECT_EQ(parse_json(R"({"b": 1, "a": [2]})", "t").dump(), R"({"b":1,"a":[2]})");
  EXPECT_EQ(parse_json(R"({"b": 1, "a": {"c": []}, "b": 2})", "t").dump(), R"({"b":2,"a":{"c":[]}})");
  std::string many = "{";
  for (int i = 0; i < 3000; ++i) many += str(i > 0 ? "," : "", "\"k", i % 1500, "\":", i);
  const Json all = parse_json(many + "}", "t");
  EXPECT_EQ(all.size(), 1500u);
  EXPECT_EQ(all.begin().key(), "k0");
  EXPECT_EQ(all["k7"], 1507);
  const std::string why = test::refusal(Fault::Data, [] { parse_json("{\"a\": }", "file.json:3"); });
  EXPECT_TRUE(why.starts_with("file.json:3: not valid JSON: parse error at line 1")) << why;
  EXPECT_THROW(parse_json(std::string(100'000, '['), "t"), Error);
  EXPECT_NO_THROW(parse_json("\"" + std::string(1000, '[') + "\"", "t")) << "brackets in a string are no nesting";
  EXPECT_EQ(json_text(Json("a\xFFz")), "\"a\xEF\xBF\xBDz\"");
}

}  // namespace
}  // namespace apus
