// SPDX-License-Identifier: Apache-2.0
// Results in order, whatever order they are finished in and whenever the run is cut off.
#include "data/results/result_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

class ResultFileTest : public ::testing::Test {
 protected:
  ResultFileTest()
      : dir(fs::temp_directory_path() / str("apus-results-", ::getpid())), path((dir / "out.jsonl").string()) {
    fs::create_directories(dir);
  }
  ~ResultFileTest() override { fs::remove_all(dir); }

  // Rows are alike in pairs.
  static Json row(int64_t i) {
    return {{"messages", Json::array({{{"role", "user"}, {"content", str("q", i / 2)}}})}, {"n", i / 2}};
  }
  static std::string key(int64_t i) {
    Json r = row(i);
    r["messages"].push_back(nullptr);
    return row_key(r);
  }
  static Json record(int64_t i, const std::string& answer = "a") {
    Json r = {{"response", answer}, {"labels", nullptr}, {"logprobs", nullptr}};
    r.update(row(i));
    r["messages"].push_back({{"role", "assistant"}, {"content", answer}});
    return r;
  }
  std::vector<int64_t> written() const {
    std::vector<int64_t> out;
    std::istringstream in(read_file(path));
    for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line)["n"].get<int64_t>());
    return out;
  }
  fs::path dir;
  std::string path;
};

TEST_F(ResultFileTest, AnswersOfAnotherModelAreRefused) {
  const Json by = {{"model", "a"}, {"temperature", 0}}, other = {{"model", "b"}, {"temperature", 0}};
  const auto opened = [&](const Json& made_by, bool resume = true, std::optional<int> process = {}) {
    return ResultFile({.path = path, .resume = resume, .process = process, .made_by = made_by});
  };
  {
    ResultFile first = opened(by);
    first.finished_before(0, key(0));
    first.begin();
    first.add(0, record(0));
    first.close();
  }
  EXPECT_EQ(opened(by).finished_before(0, key(0)), "a");
  const std::string text = test::refusal(Fault::Usage, [&] { opened(other); });
  test::expect_says(text, R"(answers that were made otherwise: model: "a" there, "b" here)");
  opened(other, /*resume=*/false);  // made anew
  fs::remove(path + ".made_by.json");
  test::expect_says(test::refusal(Fault::Usage, [&] { opened(by); }), "says which model made them");
  ResultFile({.path = path, .resume = false}).forget();
  // One of several processes has got as far as its journal.
  for (const int process : {0, 1}) {
    ResultFile journal = opened(by, true, process);
    journal.begin();
    if (process == 1) journal.add(1, record(1));
  }
  EXPECT_EQ(opened(by).finished_before(1, key(1)), "a");
  test::expect_says(test::refusal(Fault::Usage, [&] { opened(other); }), "model: ");
}

TEST_F(ResultFileTest, KeysForgetTheAnswer) {
  EXPECT_EQ(row_key(record(3, "x")), row_key(record(3, "y")));
  EXPECT_NE(row_key(record(3)), row_key(record(5)));
}

TEST_F(ResultFileTest, WritesInOrderWhatComesInAnyOrder) {
  ResultFile f({.path = path, .write_every = 1});
  f.begin();
  for (const int64_t i : {4, 2, 0}) f.add(i, record(i));
  EXPECT_EQ(written(), (std::vector<int64_t>{0}));
  f.leave_out(1);
  EXPECT_EQ(written(), (std::vector<int64_t>{0, 1}));
  f.add(3, record(3));
  f.close();
  EXPECT_EQ(written(), (std::vector<int64_t>{0, 1, 1, 2}));
  EXPECT_FALSE(fs::exists(path + ".unfinished"));
}

TEST_F(ResultFileTest, HoldsBackAsManyAsItIsTold) {
  ResultFile f({.path = path, .write_every = 3, .seconds = 1000});
  f.begin();
  f.add(0, record(0));
  f.add(1, record(1));
  EXPECT_TRUE(written().empty());
  f.add(2, record(2));
  EXPECT_EQ(written().size(), 3u);
}

TEST_F(ResultFileTest, APipeIsOnlyWritten) {
  const std::string pipe = (dir / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] {
    std::ifstream in(pipe);
    std::getline(in, got);
  });
  {
    ResultFile out({.path = pipe});
    out.begin();
    out.add(0, record(0));
    out.close();
  }
  reader.join();
  EXPECT_EQ(got, json_text(record(0)));
  EXPECT_FALSE(fs::exists(pipe + ".unfinished"));
}

TEST_F(ResultFileTest, OtherRowsAreNotMixedIn) {
  write_file_atomic(path, json_text(record(100)) + "\n");
  ResultFile f({.path = path});
  for (int64_t i = 0; i < 4; ++i) EXPECT_FALSE(f.finished_before(i, key(i)));
  EXPECT_THROW(f.begin(), Error);
  EXPECT_EQ(written(), (std::vector<int64_t>{50}));
  ResultFile anew({.path = path, .resume = false});
  anew.begin();
  anew.add(0, record(0));
  anew.close();
  EXPECT_EQ(written(), (std::vector<int64_t>{0}));
}

TEST_F(ResultFileTest, ATornLineIsDroppedAndDoneAgain) {
  write_file_atomic(path, json_text(record(0)) + "\n" + json_text(record(1)).substr(0, 20));
  ResultFile f({.path = path});
  EXPECT_EQ(f.finished_before(0, key(0)), "a");
  EXPECT_FALSE(f.finished_before(1, key(1)));
  f.begin();
  f.add(1, record(1));
  f.close();
  EXPECT_EQ(written(), (std::vector<int64_t>{0, 0}));
}

// Runs that are cut off after any number of rows, finished in random order within a window, until all is done: every
// row once, in order, and none that was finished is done again.
TEST_F(ResultFileTest, CutOffAnywhereAndGoneOnWith) {
  constexpr int64_t kRows = 30;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    fs::remove(path);
    std::vector<int> times(kRows);
    for (int run = 0;; ++run) {
      ASSERT_LT(run, 200);
      auto f = std::make_unique<ResultFile>(ResultFile::Spec{.path = path,
                                                             .write_every = static_cast<int64_t>(1 + random.below(5)),
                                                             .seconds = random.below(2) ? 0.0 : 1000});
      std::vector<int64_t> open;
      for (int64_t i = 0; i < kRows; ++i)
        if (!f->finished_before(i, key(i))) open.push_back(i);
      f->begin();
      bool cut = false;
      while (!open.empty() && !(cut = random.below(8) == 0)) {
        const auto which = static_cast<std::ptrdiff_t>(random.below(std::min<uint64_t>(open.size(), 6)));
        const int64_t i = open[static_cast<size_t>(which)];
        open.erase(open.begin() + which);
        ++times[static_cast<size_t>(i)];
        i / 2 % 7 == 3 ? f->leave_out(i) : f->add(i, record(i));
      }
      if (cut) continue;  // what is in its memory is lost
      f->close();
      break;
    }
    std::vector<int64_t> wanted;
    for (int64_t i = 0; i < kRows; ++i) {
      if (i / 2 % 7 == 3) continue;
      wanted.push_back(i / 2);
      ASSERT_EQ(times[static_cast<size_t>(i)], 1) << "seed " << seed << " row " << i;
    }
    ASSERT_EQ(written(), wanted) << seed;
    ASSERT_FALSE(fs::exists(path + ".unfinished"));
  }
}

TEST_F(ResultFileTest, SeveralProcessesKeepJournalsAndOneJoinsThem) {
  for (int process = 0; process < 3; ++process) {
    ResultFile part({.path = path, .process = process});
    part.begin();
    for (int64_t i = process; i < 11; i += 3)
      if (i != 4) part.add(i, record(i));
    part.close();
  }
  EXPECT_FALSE(fs::exists(path));
  ResultFile again({.path = path, .process = 1});  // one of another number of processes knows all answers
  EXPECT_TRUE(again.finished_before(9, key(9)).has_value());
  EXPECT_FALSE(again.finished_before(4, key(4)).has_value());
  ResultFile whole({.path = path});
  for (int64_t i = 0; i < 11; ++i) EXPECT_EQ(whole.finished_before(i, key(i)).has_value(), i != 4) << i;
  whole.begin();
  whole.close();
  EXPECT_EQ(written(), (std::vector<int64_t>{0, 0, 1, 1, 2, 3, 3, 4, 4, 5}));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), fs::directory_iterator()), 1) << "no journal is left";
}

}  // namespace
}  // namespace apus
