// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "data/rows/row.h"
#include "data/source/sample_source.h"

namespace apus {

namespace {

class IndexedSource : public SampleSource {
 public:
  IndexedSource(int64_t count, std::vector<int64_t> lengths, FetchGroup fetch, const BatchOptions& options)
      : count_(count), lengths_(std::move(lengths)), fetch_(std::move(fetch)), options_(options) {
    options_.check();
    require(count > 0, Fault::Data, "no sample is left to train on");
    require(!options_.packing || static_cast<int64_t>(lengths_.size()) == count, Fault::Bug,
            "packing needs the lengths of all samples");
    start(0);
  }

  void start(int64_t epoch) override {
    epoch_ = epoch;
    next_ = 0;
    plan();
  }
  std::optional<Samples> next() override {
    if (next_ >= size()) return std::nullopt;
    const size_t total = batches_.size(), at = static_cast<size_t>(next_ * options_.ranks + options_.rank);
    ++next_;
    return samples_of(batches_[at % total]);
  }
  std::optional<Samples> any() override { return samples_of(batches_[0]); }
  int64_t size() const override {
    const auto total = static_cast<int64_t>(batches_.size());
    return options_.even ? (total + options_.ranks - 1) / options_.ranks
                         : (total - options_.rank + options_.ranks - 1) / options_.ranks;
  }
  Json position() const override {
    return {{"kind", "indexed"}, {"samples", count_}, {"epoch", epoch_}, {"next", next_}, {"ranks", options_.ranks}};
  }
  void restore(const Json& position) override {
    require(position.value("kind", "") == "indexed" && position.value("samples", int64_t{-1}) == count_, Fault::Data,
            "the data are not those of the checkpoint: it had ", position.value("samples", int64_t{-1}),
            " samples, now there are ", count_, "; give the same datasets and options, or --ignore_data_skip true");
    start(position.at("epoch").get<int64_t>());
    // Other ranks than these may have got so far: what they took together is behind us.
    const auto taken = position.at("next").get<int64_t>() * position.value("ranks", options_.ranks);
    next_ = (taken + options_.ranks - 1) / options_.ranks;
  }

 private:
  Samples samples_of(const std::vector<int64_t>& numbers) const {
    Samples out;
    for (const int64_t number : numbers)
      for (Sample& sample : fetched(number)) out.push_back(std::move(sample));
    return out;
  }
  Samples fetched(int64_t number) const {
    for (uint64_t attempt = 0;; ++attempt) {
      try {
        return fetch_(number);
      } catch (const RowError& error) {
        require(attempt < 100, Fault::Data, "100 rows in a row could not be used; the last one: ", error.what());
        number = static_cast<int64_t>(
            Random(options_.seed, stream_named("data.replace"), static_cast<uint64_t>(number) * 101 + attempt)
                .below(static_cast<uint64_t>(count_)));
      }
    }
  }

  // The epoch's micro-batches, of all ranks.
  void plan() {
    std::vector<int64_t> order(static_cast<size_t>(count_));
    std::iota(order.begin(), order.end(), int64_t{0});
    Random random(options_.seed, stream_named("data.epoch") + static_cast<uint64_t>(epoch_));
    if (options_.shuffle) random.shuffle(std::span<int64_t>(order));
    if (options_.group_by_length && !options_.packing && !lengths_.empty()) group(order);
    batches_.clear();
    const auto per = static_cast<size_t>(options_.batch_size);
    if (!options_.packing) {
      for (size_t begin = 0; begin < order.size(); begin += per)
        batches_.emplace_back(order.begin() + static_cast<long>(begin),
                              order.begin() + static_cast<long>(std::min(begin + per, order.size())));
    } else {
      std::vector<int64_t> own;
      for (const int64_t i : order) own.push_back(lengths_[static_cast<size_t>(i)]);
      const std::vector<Bin> bins = pack_in_groups(own, options_.packing_length, options_.strategy);
      for (size_t begin = 0; begin < bins.size(); begin += per) {
        batches_.emplace_back();
        for (size_t b = begin; b < std::min(begin + per, bins.size()); ++b)
          for (const size_t i : bins[b]) batches_.back().push_back(order[i]);
      }
    }
    if (options_.group_by_length && options_.shuffle) random.shuffle(std::span<std::vector<int64_t>>(batches_));
  }
  // Within stretches of fifty micro-batches by length, the longest first.
  void group(std::vector<int64_t>& order) const {
    const size_t stretch = static_cast<size_t>(options_.batch_size) * 50;
    for (size_t begin = 0; begin < order.size(); begin += stretch)
      std::stable_sort(
          order.begin() + static_cast<long>(begin),
          order.begin() + static_cast<long>(std::min(begin + stretch, order.size())),
          [&](int64_t a, int64_t b) { return lengths_[static_cast<size_t>(a)] > lengths_[static_cast<size_t>(b)]; });
  }

  int64_t count_;
  std::vector<int64_t> lengths_;
  FetchGroup fetch_;
  BatchOptions options_;
  std::vector<std::vector<int64_t>> batches_;
  int64_t epoch_ = 0, next_ = 0;
};

}  // namespace

void BatchOptions::check() const {
  require(batch_size > 0, Fault::Usage, "--per_device_train_batch_size must be at least 1");
  require(!packing || packing_length > 0, Fault::Usage, "--packing needs --packing_length or --max_length");
  require(rank >= 0 && rank < ranks, Fault::Bug, "rank ", rank, " of ", ranks);
}

std::unique_ptr<SampleSource> make_indexed_source(int64_t count, std::vector<int64_t> lengths, FetchGroup fetch,
                                                  const BatchOptions& options) {
  return std::make_unique<IndexedSource>(count, std::move(lengths), std::move(fetch), options);
}

}  // namespace apus
