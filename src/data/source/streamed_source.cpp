// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/base64.h"
#include "base/random.h"
#include "data/encode/sample_store.h"
#include "data/source/sample_source.h"

namespace apus {

namespace {

// Works in blocks: rows are read, shuffled, encoded and made into micro-batches block by block. So a position is where
// the block began, what was left over before it, and how many of its micro-batches are done: small, and exact.
class StreamedSource : public SampleSource {
 public:
  StreamedSource(std::unique_ptr<SampleStream> stream, int64_t buffer, const BatchOptions& options)
      : stream_(std::move(stream)), buffer_(buffer), options_(options) {
    options_.check();
    require(buffer > 0, Fault::Usage, "--shuffle_buffer_size must be at least 1");
    start(0);
  }

  void start(int64_t epoch) override {
    stream_->rewind();
    epoch_ = epoch;
    block_ = -1;
    carried_.clear();
    batches_.clear();
    used_ = 0;
    ended_ = false;
    remember();
  }
  std::optional<Samples> next() override {
    while (used_ >= static_cast<int64_t>(batches_.size()) && !ended_) fill();
    if (used_ >= static_cast<int64_t>(batches_.size())) return std::nullopt;
    Samples mine = std::move(batches_[static_cast<size_t>(used_ + options_.rank)]);
    used_ += options_.ranks;
    return mine;
  }
  int64_t size() const override { return -1; }

  Json position() const override {
    Json carried = Json::array();
    for (const Sample& sample : carried_before_) carried.push_back(base64(pack_sample(sample)));
    return {{"kind", "streamed"},
            {"epoch", epoch_},
            {"block", block_before_},
            {"stream", stream_before_},
            {"carried", std::move(carried)},
            {"used", used_}};
  }
  void restore(const Json& position) override {
    require(position.value("kind", "") == "streamed", Fault::Data,
            "the checkpoint's data were not streamed; give the same --streaming, or --ignore_data_skip true");
    start(position.at("epoch").get<int64_t>());
    block_ = position.at("block").get<int64_t>();
    stream_->restore(position.at("stream"));
    for (const auto& text : position.at("carried"))
      carried_.push_back(unpack_sample(from_base64(text.get<std::string>())));
    remember();
    const auto used = position.at("used").get<int64_t>();
    if (used > 0) fill();
    used_ = used;
  }

 private:
  void remember() {
    stream_before_ = stream_->position();
    carried_before_ = carried_;
    block_before_ = block_;
  }
  void fill() {
    remember();
    ++block_;
    std::vector<Samples> rows;
    for (Samples row; static_cast<int64_t>(rows.size()) < buffer_;) {
      if (!stream_->next(row)) {
        ended_ = true;
        break;
      }
      rows.push_back(std::move(row));
      row.clear();
    }
    if (options_.shuffle)
      Random(options_.seed,
             mix(stream_named("data.block"), static_cast<uint64_t>(epoch_), static_cast<uint64_t>(block_)))
          .shuffle(std::span<Samples>(rows));
    Samples samples = std::move(carried_);
    carried_.clear();
    for (auto& row : rows)
      for (auto& sample : row) samples.push_back(std::move(sample));
    batches_.clear();
    used_ = 0;
    std::vector<Samples> groups = groups_of(std::move(samples));
    options_.packing ? make_packs(groups) : make_batches(groups);
    drop_uneven();
  }
  static void move_into(Samples& to, Samples& group) { std::move(group.begin(), group.end(), std::back_inserter(to)); }
  void make_batches(std::vector<Samples>& groups) {
    const auto per = static_cast<size_t>(options_.batch_size);
    for (size_t begin = 0; begin < groups.size(); begin += per) {
      const size_t count = std::min(per, groups.size() - begin);
      const bool whole = count == per || ended_;
      auto& to = whole ? batches_.emplace_back() : carried_;
      for (size_t i = begin; i < begin + count; ++i) move_into(to, groups[i]);
    }
  }
  void make_packs(std::vector<Samples>& groups) {
    std::vector<int64_t> lengths;
    for (const Samples& group : groups) lengths.push_back(tokens_of(group));
    std::vector<Bin> bins = pack(lengths, options_.packing_length, options_.strategy);
    const auto carry = [&](const Bin& bin) {
      for (const size_t i : bin) move_into(carried_, groups[i]);
    };
    if (!ended_ && !bins.empty()) {
      const size_t open = options_.strategy == PackingStrategy::Sequential ? bins.size() - 1 : emptiest(bins, lengths);
      carry(bins[open]);
      bins.erase(bins.begin() + static_cast<long>(open));
    }
    const auto per = static_cast<size_t>(options_.batch_size);
    for (size_t begin = 0; begin < bins.size(); begin += per) {
      const size_t end = std::min(begin + per, bins.size());
      if (end - begin < per && !ended_) {
        for (size_t b = begin; b < end; ++b) carry(bins[b]);
        break;
      }
      Samples& batch = batches_.emplace_back();
      for (size_t b = begin; b < end; ++b)
        for (const size_t i : bins[b]) move_into(batch, groups[i]);
    }
  }
  // Every rank gets the same number of micro-batches; what is over goes on to the next block, or is left at the end.
  void drop_uneven() {
    while (batches_.size() % static_cast<size_t>(options_.ranks) != 0) {
      if (!ended_) std::move(batches_.back().begin(), batches_.back().end(), std::back_inserter(carried_));
      batches_.pop_back();
    }
  }

  std::unique_ptr<SampleStream> stream_;
  const int64_t buffer_;
  const BatchOptions options_;
  int64_t epoch_ = 0, block_ = -1, used_ = 0;
  bool ended_ = false;
  std::vector<Samples> batches_;
  Samples carried_;
  // As it was before the block at hand.
  Json stream_before_;
  Samples carried_before_;
  int64_t block_before_ = -1;
};

}  // namespace

std::unique_ptr<SampleSource> make_streamed_source(std::unique_ptr<SampleStream> stream, int64_t buffer,
                                                   const BatchOptions& options) {
  return std::make_unique<StreamedSource>(std::move(stream), buffer, options);
}

}  // namespace apus
