// SPDX-License-Identifier: Apache-2.0
// Names of datasets and the files behind them;
// reading, sampling, splitting, mixing, streaming, and going on from any place.
#include "data/source/datasets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/files.h"
#include "tests/data/data_test_tools.h"

namespace apus {
namespace {

TEST(DatasetRefs, AreTakenApart) {
  const auto r = parse_dataset_ref("hf::org/name:sub1/sub2#500");
  EXPECT_EQ(r.hub, DatasetRef::Hub::HuggingFace);
  EXPECT_EQ(r.id, "org/name");
  EXPECT_EQ(r.subsets, (std::vector<std::string>{"sub1", "sub2"}));
  EXPECT_EQ(r.count, 500);
  EXPECT_EQ(parse_dataset_ref("ms::a/b").hub, DatasetRef::Hub::ModelScope);
  EXPECT_EQ(parse_dataset_ref("C:/x.jsonl#3").id, "C:/x.jsonl");
  EXPECT_THROW(parse_dataset_ref("a#many"), Error);
  EXPECT_THROW(parse_dataset_ref("a#-1"), Error);
  TemporaryFolder dir;
  // It exists under that name.
  EXPECT_EQ(parse_dataset_ref(dir.write("odd#1:x.jsonl", "").string()).count, std::nullopt);
}

std::vector<std::string> names(const std::vector<std::filesystem::path>& files) {
  std::vector<std::string> out;
  for (const auto& file : files) out.push_back(file.filename().string());
  return out;
}
std::vector<std::string> files_of(const std::string& text, const FetchDataset& fetch = nullptr) {
  return names(dataset_files(parse_dataset_ref(text), fetch));
}
using Names = std::vector<std::string>;

TEST(DatasetFiles, OfGlobsFoldersAndCards) {
  TemporaryFolder dir;
  for (const char* name : {"data/train-00001-of-00002.jsonl", "data/train-00000-of-00002.jsonl",
                           "data/test-00000.jsonl", "dataset_infos.json", "de/x.jsonl", "de/validation.jsonl"})
    dir.write(name, "{}");
  const std::string folder = dir.path().string();
  EXPECT_EQ(files_of(folder), (Names{"train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"}));
  EXPECT_EQ(files_of(folder + "/data/*.jsonl").size(), 3u);
  EXPECT_EQ(files_of(folder + ":de"), (Names{"x.jsonl"}));
  dir.write("README.md",
            "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: train\n    path: data/train-00000*\n  - split: "
            "test\n    path: data/test-*\n- config_name: default\n  data_files: de/*.jsonl\n---\n# card\n");
  EXPECT_EQ(files_of(folder), (Names{"validation.jsonl", "x.jsonl"}));
  EXPECT_EQ(files_of(folder + ":a"), (Names{"train-00000-of-00002.jsonl"}));
  EXPECT_NE(error_of([&] { files_of(folder + ":zz"); }).find("no subset 'zz'; there are a, default"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              files_of("/no/such/file.jsonl");
            }).find("The local path does not exist, dataset_id: `/no/such/file.jsonl`"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              files_of(folder + "/de/x.jsonl:en");
            }).find("/de/x.jsonl is a file, and only folders and datasets of hubs have subsets; leave ':en' away"),
            std::string::npos);
  EXPECT_NE(error_of([&] { files_of(folder + "/de/*.jsonl:en"); }).find("names files"), std::string::npos);
  EXPECT_NE(error_of([&] { files_of("./x*.jsonl"); }).find("no file matches"), std::string::npos);
  EXPECT_EQ(files_of("org/name",
                     [&](const DatasetRef& ref) { return ref.id == "org/name" ? dir.path() : std::filesystem::path(); })
                .size(),
            2u);
}

std::string numbered(const std::string& letter, int count, int from = 0) {
  std::string out;
  for (int i = from; i < from + count; ++i)
    out += "{\"query\":\"q\",\"response\":\"" + letter + std::to_string(i) + "\"}\n";
  return out;
}
std::string answer(const Json& row) { return row["messages"].back()["content"].get<std::string>(); }
Names answers(const Datasets& data, const std::vector<int64_t>& rows) {
  Names out;
  for (const int64_t n : rows) out.push_back(answer(data.rows->row(n).value));
  return out;
}
Names sorted(Names list) {
  std::sort(list.begin(), list.end());
  return list;
}

struct Mixing : testing::Test {
  TemporaryFolder dir;
  std::string a = dir.write("a.jsonl", numbered("a", 10)).string(),
              b = dir.write("b.jsonl", numbered("b", 4) + "{\"bad\":1}\n" + numbered("b", 1, 4)).string();
  RejectLog rejects{{.file = dir.path() / "out/rejected.jsonl"}};
  DatasetOptions options;
};

TEST_F(Mixing, ConcatenatesAndShufflesBySeed) {
  options.train = {a, b};
  const Datasets data = load_datasets(options, rejects);
  const Names first = answers(data, data.train);
  EXPECT_EQ(sorted(first).size(), 15u);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  EXPECT_EQ(answers(data, load_datasets(options, rejects).train), first);
  options.seed = 43;
  const Datasets other = load_datasets(options, rejects);
  EXPECT_NE(answers(other, other.train), first);
  options.shuffle = false;
  const Datasets plain = load_datasets(options, rejects);
  EXPECT_EQ(answers(plain, plain.train).front(), "a0");
  EXPECT_EQ(rejects.count(), 1);  // the same row each time
  const std::string kept = read_file(dir.path() / "out/rejected.jsonl");
  EXPECT_NE(kept.find("\"line\":5"), std::string::npos) << kept;
  EXPECT_NE(kept.find("\"row\":{\"bad\":1}"), std::string::npos) << kept;
}

TEST_F(Mixing, StrictStopsAtTheFirstBadRow) {
  RejectLog strict{{.strict = true}};
  options.train = {b};
  EXPECT_NE(error_of([&] { load_datasets(options, strict); }).find("line 5"), std::string::npos);
}

TEST_F(Mixing, SamplesByCount) {
  options.train = {a + "#3"};
  Datasets data = load_datasets(options, rejects);
  EXPECT_EQ(data.train.size(), 3u);
  options.train = {a + "#23"};
  data = load_datasets(options, rejects);
  std::map<std::string, int> times;
  for (const auto& name : answers(data, data.train)) ++times[name];
  EXPECT_EQ(data.train.size(), 23u);
  EXPECT_EQ(times.size(), 10u);
  for (const auto& [name, n] : times) EXPECT_TRUE(n == 2 || n == 3) << name;
  options.shuffle = false;
  options.train = {a + "#3"};
  data = load_datasets(options, rejects);
  EXPECT_EQ(answers(data, data.train), (Names{"a0", "a1", "a2"}));
}

TEST_F(Mixing, KeepsRowsBackForValidation) {
  options.train = {a, b};
  options.split_ratio = 0.25;
  Datasets data = load_datasets(options, rejects);
  EXPECT_EQ(data.validation.size(), 3u);  // 2 of 10 and 1 of 5
  EXPECT_EQ(data.train.size(), 12u);
  Names all = answers(data, data.train);
  for (const auto& name : answers(data, data.validation)) all.push_back(name);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 15u);
  options.split_ratio = 0.001;
  EXPECT_EQ(load_datasets(options, rejects).validation.size(), 2u);  // never none
  options.validation = {b};
  data = load_datasets(options, rejects);
  EXPECT_EQ(data.train.size(), 15u);  // a validation set of its own: nothing is kept back
  EXPECT_EQ(answers(data, data.validation), (Names{"b0", "b1", "b2", "b3", "b4"}));
}

TEST_F(Mixing, InterleavesByShares) {
  options.train = {a, b};
  options.interleave = {0.5, 0.5};
  Datasets data = load_datasets(options, rejects);
  const Names mixed = answers(data, data.train);
  const auto of_a = std::count_if(mixed.begin(), mixed.end(), [](const std::string& s) { return s[0] == 'a'; });
  EXPECT_TRUE(of_a == 10 || static_cast<long>(mixed.size()) - of_a == 5);
  options.stopping = Stopping::AllExhausted;
  data = load_datasets(options, rejects);
  const Names longer = answers(data, data.train);
  EXPECT_EQ(std::set<std::string>(longer.begin(), longer.end()).size(), 15u);
  options.interleave = {0.5};
  EXPECT_THROW(load_datasets(options, rejects), Error);
}

TEST_F(Mixing, EmptyDatasetsAreErrors) {
  options.train = {dir.write("bad.jsonl", "{\"x\":1}\n").string()};
  EXPECT_NE(error_of([&] { load_datasets(options, rejects); }).find("has no usable row"), std::string::npos);
}

Names stream_rest(MixedStream& stream) {
  Names out;
  for (Row row; stream.next(row);) out.push_back(answer(row.value));
  return out;
}

TEST_F(Mixing, StreamsGoOnFromAnyPlace) {
  for (const auto& shares : {std::vector<double>{}, std::vector<double>{0.7, 0.3}}) {
    for (const Stopping stopping : {Stopping::FirstExhausted, Stopping::AllExhausted}) {
      options.interleave = shares;
      options.stopping = stopping;
      const std::vector<std::string> refs = {a, b + "#4"};
      MixedStream whole = stream_datasets(refs, options, rejects);
      std::vector<Json> positions{whole.position()};
      Names all;
      for (Row row; whole.next(row); positions.push_back(whole.position())) all.push_back(answer(row.value));
      if (shares.empty())
        EXPECT_EQ(all.size(), 14u);
      else {
        DatasetOptions loaded = options;
        loaded.train = {a, b + "#4"};
        loaded.shuffle = false;
        const Datasets data = load_datasets(loaded, rejects);
        EXPECT_EQ(all, answers(data, data.train));  // streaming or not: the same mixture
      }
      for (size_t i = 0; i < positions.size(); ++i) {
        MixedStream again = stream_datasets(refs, options, rejects);
        again.restore(Json::parse(positions[i].dump()));
        EXPECT_EQ(stream_rest(again), Names(all.begin() + static_cast<long>(i), all.end())) << i;
      }
    }
  }
}

TEST_F(Mixing, ValidationRowsCanBeSavedAndReadAgain) {
  options.train = {a};
  options.split_ratio = 0.3;
  const Datasets data = load_datasets(options, rejects);
  save_rows(*data.rows, data.validation, dir.path() / "val.jsonl");
  options.train = {(dir.path() / "val.jsonl").string()};
  options.split_ratio = 0;
  const Datasets again = load_datasets(options, rejects);
  EXPECT_EQ(sorted(answers(again, again.train)), sorted(answers(data, data.validation)));
}

TEST(DatasetFiles, LinksThatLeadNowhereArePassedOverInFoldersAndToldAlone) {
  TemporaryFolder dir;
  const auto folder = dir.path() / "rows";
  dir.write("rows/good.jsonl", "{}\n");
  std::filesystem::create_symlink("gone.jsonl", folder / "dangling.jsonl");
  std::filesystem::create_symlink("circle.jsonl", folder / "circle.jsonl");
  std::filesystem::create_symlink("good.jsonl", folder / "link.jsonl");
  EXPECT_EQ(files_of(folder.string()), (Names{"good.jsonl", "link.jsonl"}));
  EXPECT_EQ(files_of((folder / "*.jsonl").string()), (Names{"good.jsonl", "link.jsonl"}));
  for (const auto& [name, why] : {std::pair("dangling", "a link to gone.jsonl, which does not exist"),
                                  {"circle", "a link to circle.jsonl, which leads in a circle"}}) {
    try {
      files_of((folder / name).string() + ".jsonl");
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.at.fault, Fault::Io);
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  }
}

TEST(Rejects, AlikeReasonsCountTogether) {
  EXPECT_EQ(reason_class("messages[3].role", "line 12 has 5"), reason_class("messages[7].role", "line 9 has 123"));
  EXPECT_EQ(reason_class("", "a template's error\n  in: its line"), "a template's error");
  EXPECT_EQ(reason_class("images[0]", "cannot read /a/b.png: No such file"),
            reason_class("images[1]", "cannot read /c: No such file"));
}

}  // namespace
}  // namespace apus
