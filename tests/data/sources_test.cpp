// SPDX-License-Identifier: Apache-2.0
// Packing, the store of samples, and micro-batches that go on exactly from any place.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include "base/files.h"
#include "base/random.h"
#include "data/source/training_data.h"
#include "tests/data/data_test_tools.h"
#include "tests/paths.h"

namespace apus {
namespace {

std::vector<int64_t> random_lengths(size_t count, int64_t most) {
  Random random(7, "test.lengths");
  std::vector<int64_t> out;
  for (size_t i = 0; i < count; ++i) out.push_back(1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(most))));
  return out;
}
int64_t tokens_in(const Bin& bin, const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const size_t i : bin) sum += lengths[i];
  return sum;
}
void expect_partition(const std::vector<Bin>& bins, const std::vector<int64_t>& lengths, int64_t capacity) {
  std::vector<int> times(lengths.size(), 0);
  for (const Bin& bin : bins) {
    for (const size_t i : bin) ++times[i];
    EXPECT_TRUE(tokens_in(bin, lengths) <= capacity || bin.size() == 1);
  }
  EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; }));
}

TEST(Packing, BestFitIsTightAndWhole) {
  const auto lengths = random_lengths(3000, 700);
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  for (const auto strategy : {PackingStrategy::BestFit, PackingStrategy::Sequential}) {
    const auto bins = pack_in_groups(lengths, 2048, strategy);
    expect_partition(bins, lengths, 2048);
    const double filled = static_cast<double>(total) / (2048.0 * static_cast<double>(bins.size()));
    EXPECT_GT(filled, strategy == PackingStrategy::BestFit ? 0.99 : 0.8);
    EXPECT_EQ(bins, pack_in_groups(lengths, 2048, strategy));
  }
  EXPECT_EQ(pack({5, 9, 4, 3}, 9, PackingStrategy::BestFit), (std::vector<Bin>{{0, 2}, {1}, {3}}));
  EXPECT_EQ(pack({5, 9, 4, 3}, 9, PackingStrategy::Sequential), (std::vector<Bin>{{0}, {1}, {2, 3}}));
  EXPECT_EQ(pack({50, 1}, 9, PackingStrategy::BestFit), (std::vector<Bin>{{0}, {1}}));
  EXPECT_TRUE(pack({}, 9, PackingStrategy::BestFit).empty());
}

Sample sample_of(int64_t number, int64_t length) {
  Sample s;
  for (int64_t i = 0; i < length; ++i) s.ids.push_back(static_cast<int32_t>(number));
  s.trained.assign(static_cast<size_t>(length), 1);
  s.trained[0] = 0;
  if (number % 3 == 0) s.weights.assign(static_cast<size_t>(length), 0.5f);
  if (number % 5 == 0) s.channel = "c" + std::to_string(number);
  if (number % 7 == 0) s.columns = {{"label", 1.0f}, {"margin", -0.5f}};
  if (number % 8 == 0) s.token_columns["reference"].assign(static_cast<size_t>(length), -1.5f);
  if (number % 9 == 0) s.row = "{\"solution\": " + std::to_string(number) + "}";
  s.grouped = number % 4 == 3;
  return s;
}
Sample alone(int64_t number, int64_t length) {
  Sample s = sample_of(number, length);
  s.grouped = false;
  return s;
}

void expect_same(const Sample& a, const Sample& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.trained, b.trained);
  EXPECT_EQ(a.weights, b.weights);
  EXPECT_EQ(a.channel, b.channel);
  EXPECT_EQ(a.grouped, b.grouped);
  EXPECT_EQ(a.columns, b.columns);
  EXPECT_EQ(a.token_columns, b.token_columns);
  EXPECT_EQ(a.row, b.row);
}

TEST(SampleStores, KeepSamplesInMemoryAndInACache) {
  TemporaryFolder dir;
  SampleStore store;
  const auto lengths = random_lengths(50, 90);
  for (size_t i = 0; i < lengths.size(); ++i) store.add(sample_of(static_cast<int64_t>(i), lengths[i]));
  for (int64_t i = 0; i < store.size(); ++i) expect_same(store.get(i), sample_of(i, lengths[static_cast<size_t>(i)]));
  const Json made_with = {{"max_length", 512}, {"system", nullptr}, {"loss_scale", "default"}};
  store.save(dir.path() / "train", made_with);
  const SampleStore cache = SampleStore::open(dir.path() / "train", made_with);
  ASSERT_EQ(cache.size(), store.size());
  EXPECT_EQ(cache.lengths(), lengths);
  for (int64_t i = 0; i < cache.size(); ++i) expect_same(cache.get(i), store.get(i));
  Json otherwise = made_with;
  otherwise["max_length"] = 256, otherwise["system"] = "Be brief.";
  EXPECT_NE(error_of([&] {
              SampleStore::open(dir.path() / "train", otherwise);
            }).find("max_length: 512 there, 256 here; system: null there, \"Be brief.\" here"),
            std::string::npos);
  EXPECT_NE(error_of([&] { SampleStore::open(dir.path(), nullptr); }).find("to_cached_dataset"), std::string::npos);
  SampleStore joined;
  joined.append(cache);
  joined.append(store);
  expect_same(joined.get(cache.size() + 3), store.get(3));
}

TEST(SampleStores, NoticeDamage) {
  TemporaryFolder dir;
  SampleStore store;
  for (int64_t i = 0; i < 9; ++i) store.add(sample_of(i, 5 + i));
  store.save(dir.path(), nullptr);
  const std::string whole = read_file(dir.path() / "samples.bin");
  int noticed = 0, changes = 0;
  for (size_t at = 0; at < whole.size(); at += 3, ++changes) {
    std::string damaged = whole;
    damaged[at] ^= 0x10;
    dir.write("samples.bin", damaged);
    try {
      const SampleStore cache = SampleStore::open(dir.path(), nullptr);
      for (int64_t i = 0; i < cache.size(); ++i) cache.get(i);
    } catch (const Error& error) {
      EXPECT_EQ(error.at.fault, Fault::Data);
      ++noticed;
    }
  }
  EXPECT_EQ(noticed, changes);
  dir.write("samples.bin", whole.substr(0, whole.size() / 2));
  EXPECT_THROW(SampleStore::open(dir.path(), nullptr), Error);
}

// What a micro-batch holds, as text.
std::string shown(const std::optional<Samples>& batch) {
  if (!batch) return "end";
  std::string out;
  for (const Sample& s : *batch) out += str(s.ids[0], "x", s.length(), " ");
  return out;
}
std::vector<std::string> rest(SampleSource& source) {
  std::vector<std::string> out;
  while (auto batch = source.next()) out.push_back(shown(batch));
  return out;
}

using MakeSource = std::function<std::unique_ptr<SampleSource>()>;

// From every position the same micro-batches follow, in a fresh source too.
void expect_resumable(const MakeSource& make) {
  for (const int64_t epoch : {0, 1}) {
    auto source = make();
    source->start(epoch);
    std::vector<Json> positions{source->position()};
    std::vector<std::string> all;
    for (auto batch = source->next(); batch; batch = source->next()) {
      all.push_back(shown(batch));
      positions.push_back(source->position());
    }
    ASSERT_GT(all.size(), 3u);
    if (source->size() >= 0) {
      EXPECT_EQ(source->size(), static_cast<int64_t>(all.size()));
    }
    for (size_t i = 0; i < positions.size(); ++i) {
      auto again = make();
      again->restore(Json::parse(positions[i].dump()));
      EXPECT_EQ(rest(*again), std::vector<std::string>(all.begin() + static_cast<long>(i), all.end())) << i;
    }
  }
}

MakeSource indexed(BatchOptions options, size_t count = 60) {
  return [=] {
    const auto lengths = random_lengths(count, 40);
    return make_indexed_source(
        static_cast<int64_t>(count), lengths,
        [=](int64_t i) { return Samples{alone(i, lengths[static_cast<size_t>(i)])}; }, options);
  };
}

TEST(IndexedSources, GoOnFromAnyPlace) {
  expect_resumable(indexed({.batch_size = 4}));
  expect_resumable(indexed({.batch_size = 3, .group_by_length = true}));
  expect_resumable(indexed({.batch_size = 2, .packing = true, .packing_length = 64}));
  expect_resumable([] { return make_run_ahead_source(indexed({.batch_size = 4})(), 5); });
  EXPECT_NE(error_of([] {
              indexed({}, 9)()->restore(indexed({}, 10)()->position());
            }).find("it had 10 samples, now there are 9"),
            std::string::npos);
}

TEST(IndexedSources, EpochsDifferAndSeedsDecide) {
  auto a = indexed({.batch_size = 4})(), b = indexed({.batch_size = 4})(), c = indexed({.batch_size = 4, .seed = 1})();
  const auto first = rest(*a);
  EXPECT_EQ(rest(*b), first);
  EXPECT_NE(rest(*c), first);
  a->start(1);
  EXPECT_NE(rest(*a), first);
  a->start(0);
  EXPECT_EQ(rest(*a), first);
  auto plain = indexed({.batch_size = 1, .shuffle = false})();
  EXPECT_TRUE(shown(plain->next()).starts_with("0x"));
}

TEST(IndexedSources, RanksShareTheMicroBatches) {
  std::multiset<std::string> all, single;
  for (int64_t rank = 0; rank < 3; ++rank) {
    auto source = indexed({.batch_size = 4, .rank = rank, .ranks = 3})();
    const auto mine = rest(*source);
    EXPECT_EQ(mine.size(), 5u);
    all.insert(mine.begin(), mine.end());
  }
  for (const auto& batch : rest(*indexed({.batch_size = 4})())) single.insert(batch);
  EXPECT_EQ(all, single);
  size_t uneven = 0;
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(rest(*indexed({.batch_size = 4, .rank = rank, .ranks = 4})()).size(), 4u);  // 15 micro-batches: one twice
    uneven += rest(*indexed({.batch_size = 4, .rank = rank, .ranks = 4, .even = false})()).size();
  }
  EXPECT_EQ(uneven, 15u);
}

TEST(IndexedSources, RefusedSamplesAreReplaced) {
  auto source = make_indexed_source(20, {},
                                    [](int64_t i) -> Samples {
                                      if (i % 4 == 0) throw RowError({}, "", "bad");
                                      return {alone(i, 3)};
                                    },
                                    {.batch_size = 5});
  const auto batches = rest(*source);
  EXPECT_EQ(batches.size(), 4u);
  for (const auto& batch : batches) EXPECT_EQ(std::count(batch.begin(), batch.end(), 'x'), 5);
  auto hopeless = make_indexed_source(3, {}, [](int64_t) -> Samples { throw RowError({}, "", "bad"); }, {});
  EXPECT_NE(error_of([&] { hopeless->next(); }).find("100 rows in a row"), std::string::npos);
}

// Numbers as a stream; every ninth row gives no sample, every tenth two.
class CountingStream : public SampleStream {
 public:
  explicit CountingStream(int64_t count) : count_(count), lengths_(random_lengths(static_cast<size_t>(count), 40)) {}
  void rewind() override { at_ = 0; }
  bool next(Samples& samples) override {
    samples.clear();
    if (at_ >= count_) return false;
    for (int copies = at_ % 9 == 0 ? 0 : at_ % 10 == 0 ? 2 : 1; copies > 0; --copies)
      samples.push_back(alone(at_, lengths_[static_cast<size_t>(at_)]));
    ++at_;
    return true;
  }
  Json position() const override { return {{"at", at_}}; }
  void restore(const Json& position) override { at_ = position["at"].get<int64_t>(); }

 private:
  int64_t count_, at_ = 0;
  std::vector<int64_t> lengths_;
};

TEST(StreamedSources, GoOnFromAnyPlace) {
  for (const BatchOptions& options :
       {BatchOptions{.batch_size = 4}, BatchOptions{.batch_size = 2, .packing = true, .packing_length = 64},
        BatchOptions{.batch_size = 1, .packing = true, .packing_length = 64, .strategy = PackingStrategy::Sequential},
        BatchOptions{.batch_size = 3, .rank = 1, .ranks = 2}}) {
    expect_resumable([=] { return make_streamed_source(std::make_unique<CountingStream>(100), 16, options); });
    expect_resumable([=] {
      return make_run_ahead_source(make_streamed_source(std::make_unique<CountingStream>(100), 16, options), 3);
    });
  }
}

// Pairs of samples as rows of a stream, and as groups known by number: no pack and no micro-batch divides them.
Samples pair_of(int64_t number) {
  Samples pair = {alone(number, 5 + number % 7), alone(number, 9 + number % 5)};
  pair[1].grouped = true;
  return pair;
}

class PairStream : public SampleStream {
 public:
  void rewind() override { at_ = 0; }
  bool next(Samples& samples) override {
    if (at_ >= 50) return false;
    samples = pair_of(at_++);
    return true;
  }
  Json position() const override { return {{"at", at_}}; }
  void restore(const Json& position) override { at_ = position["at"].get<int64_t>(); }

 private:
  int64_t at_ = 0;
};

std::unique_ptr<SampleSource> indexed_pairs(const BatchOptions& options) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 50; ++i) lengths.push_back(tokens_of(pair_of(i)));
  return make_indexed_source(50, lengths, pair_of, options);
}

TEST(Groups, AreNeverDivided) {
  for (const BatchOptions& options :
       {BatchOptions{.batch_size = 3}, BatchOptions{.batch_size = 2, .packing = true, .packing_length = 64},
        BatchOptions{.packing = true, .packing_length = 40, .strategy = PackingStrategy::Sequential}}) {
    const auto streamed = [=] { return make_streamed_source(std::make_unique<PairStream>(), 16, options); };
    const auto indexed = [=] { return indexed_pairs(options); };
    for (const MakeSource& make : {MakeSource(streamed), MakeSource(indexed)}) {
      std::multiset<int32_t> seen;
      const auto source = make();
      for (auto batch = source->next(); batch; batch = source->next()) {
        if (options.packing) {
          EXPECT_LE(tokens_of(*batch), options.batch_size * options.packing_length);
        }
        for (const Samples& group : groups_of(std::move(*batch))) {
          ASSERT_EQ(group.size(), 2u);
          EXPECT_EQ(group[0].ids[0], group[1].ids[0]);
          seen.insert(group[0].ids[0]);
        }
      }
      EXPECT_EQ(seen.size(), 50u);
      expect_resumable(make);
    }
  }
}

TEST(Groups, AreKeptByStores) {
  TemporaryFolder dir;
  SampleStore store;
  for (const Samples& samples : {pair_of(0), Samples{alone(1, 4)}, pair_of(2)})
    for (const Sample& sample : samples) store.add(sample);
  EXPECT_EQ(store.groups(), (std::vector<int64_t>{0, 2, 3, 5}));
  store.save(dir.path(), nullptr);
  EXPECT_EQ(SampleStore::open(dir.path(), nullptr).groups(), store.groups());
  write_file_atomic(dir.path() / "info.json", "{\"version\": 1}");
  EXPECT_NE(error_of([&] { SampleStore::open(dir.path(), nullptr); }).find("make the cache anew"), std::string::npos);
}

TEST(StreamedSources, GiveEverySampleOnce) {
  auto source = make_streamed_source(std::make_unique<CountingStream>(100), 16, {.batch_size = 3});
  std::multiset<int32_t> seen;
  size_t batches = 0, whole = 0;
  while (auto batch = source->next()) {
    ++batches;
    whole += batch->size() == 3;
    for (const auto& s : *batch) seen.insert(s.ids[0]);
  }
  EXPECT_GE(whole + 1, batches);
  for (int32_t i = 0; i < 100; ++i) EXPECT_EQ(seen.count(i), i % 9 == 0 ? 0u : i % 10 == 0 ? 2u : 1u) << i;
}

constexpr const char* kChat =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if "
    "add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct Pipeline : testing::Test {
  TemporaryFolder dir;
  RejectLog rejects{{.file = dir.path() / "rejected.jsonl"}};
  Encoder encoder{Tokenizer::load(test::source_dir() / "tests/data/text/tokenizers/tiny-qwen3"),
                  ChatTemplate::from_text(kChat, "test"),
                  {.max_length = 64}};
  TrainingDataOptions options;
  Pipeline() {
    std::string text;
    for (int i = 0; i < 90; ++i)
      text += "{\"query\":\"question " + std::to_string(i) + "\",\"response\":\"" +
              std::string(static_cast<size_t>(i % 30), 'x') + " answer\"}\n";
    text += "{\"query\":\"too long\",\"response\":\"" + std::string(900, '?') +
            " and so on\"}\n{\"query\":\"no answer\"}\n";
    options.datasets.train = {dir.write("a.jsonl", text).string()};
    options.batches = {.batch_size = 2, .packing = true, .packing_length = 128};
  }
  MakeSource making() {
    return [this] { return prepare_training_data(options, encoder, rejects).train; };
  }
};

TEST_F(Pipeline, FromFilesToMicroBatches) {
  options.datasets.split_ratio = 0.1;
  options.threads = 3;
  TrainingData data = prepare_training_data(options, encoder, rejects);
  ASSERT_TRUE(data.report && data.validation_report && data.first && data.validation);
  EXPECT_EQ(data.report->rows + data.validation_report->rows, 90);
  EXPECT_EQ(data.validation_rows.size(), 9u);
  EXPECT_EQ(rejects.count(), 2);
  EXPECT_NE(read_file(dir.path() / "rejected.jsonl").find("MaxLengthError"), std::string::npos);
  EXPECT_GT(data.report->trained, 0);
  EXPECT_NE(report_text(*data.report).find("Dataset Token Length: "), std::string::npos);
  const auto& longest = data.report->longest_rows.at(0);
  EXPECT_EQ(longest.length, data.report->longest);
  EXPECT_NE(report_text(*data.report).find(longest.where), std::string::npos);
  EXPECT_NE(longest.where.find("a.jsonl, line "), std::string::npos) << longest.where;
}

TEST_F(Pipeline, GoesOnFromAnyPlaceInEveryWay) {
  expect_resumable(making());
  options.streaming = true;
  options.shuffle_buffer = 20;
  expect_resumable(making());
  options.streaming = false;
  options.batches.packing = false;
  options.lazy = true;
  expect_resumable(making());
}

TEST_F(Pipeline, ACacheGivesTheSameMicroBatches) {
  const auto direct = rest(*making()());
  Datasets rows = load_datasets(options.datasets, rejects);
  encode_rows(
      *rows.rows, rows.train, [&](const Row& row) { return encoder.encode(row); }, rejects, 1, "test")
      .save(dir.path() / "cache", encoder.made_with());
  options.datasets.train.clear();
  options.cached = {(dir.path() / "cache").string()};
  EXPECT_EQ(rest(*making()()), direct);
  Encoder other(Tokenizer::load(test::source_dir() / "tests/data/text/tokenizers/tiny-qwen3"),
                ChatTemplate::from_text(kChat, "test"), {.max_length = 63});
  EXPECT_THROW(prepare_training_data(options, other, rejects), Error);
}

TEST_F(Pipeline, RefusesWhatCannotWork) {
  options.lazy = true;
  EXPECT_NE(error_of([&] { making()(); }).find("packing needs all lengths"), std::string::npos);
  options.lazy = false;
  options.datasets.train = {dir.write("bad.jsonl", "{\"query\":\"no answer\"}\n").string()};
  EXPECT_NE(error_of([&] { making()(); }).find("no row is left to train on"), std::string::npos);
  options.datasets.train.clear();
  EXPECT_NE(error_of([&] { making()(); }).find("give --dataset or --cached_dataset"), std::string::npos);
}

}  // namespace
}  // namespace apus
