// SPDX-License-Identifier: Apache-2.0
#include "data/source/training_data.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "base/progress.h"

namespace apus {

namespace {

// Streamed rows as samples.
class EncodedStream : public SampleStream {
 public:
  EncodedStream(std::function<MixedStream()> open, EncodeRow encode, RejectLog& rejects)
      : open_(std::move(open)), encode_(std::move(encode)), rejects_(rejects), rows_(open_()) {}
  void rewind() override { rows_ = open_(); }
  bool next(Samples& samples) override {
    Row row;
    if (!rows_.next(row)) return false;
    try {
      samples = encode_(row);
    } catch (const RowError& error) {
      rejects_.add(error, &row.value);
      samples.clear();
    }
    return true;
  }
  Json position() const override { return rows_.position(); }
  void restore(const Json& position) override {
    rows_ = open_();
    rows_.restore(position);
  }

 private:
  std::function<MixedStream()> open_;
  EncodeRow encode_;
  RejectLog& rejects_;
  MixedStream rows_;
};

Json made_with(const TrainingDataOptions& options, const Encoder& encoder) {
  Json made = encoder.made_with();
  made.update(options.cached_as);
  return made;
}

std::shared_ptr<SampleStore> open_caches(const std::vector<std::string>& folders, const Json& made_with) {
  auto all = std::make_shared<SampleStore>();
  if (folders.size() == 1) {
    *all = SampleStore::open(folders[0], made_with);
  } else {
    for (const auto& folder : folders) all->append(SampleStore::open(folder, made_with));
  }
  return all;
}

std::unique_ptr<SampleSource> source_of(std::shared_ptr<const SampleStore> samples, const Encoder& encoder,
                                        const BatchOptions& options) {
  std::vector<int64_t> first = samples->groups(), lengths(first.size() - 1, 0);
  for (size_t g = 0; g < lengths.size(); ++g)
    for (int64_t i = first[g]; i < first[g + 1]; ++i) lengths[g] += samples->length(i);
  const auto count = static_cast<int64_t>(lengths.size());
  FetchGroup fetch = [samples, first = std::move(first), &encoder](int64_t number) {
    Samples group;
    for (int64_t i = first[static_cast<size_t>(number)]; i < first[static_cast<size_t>(number) + 1]; ++i)
      encoder.load_media(group.emplace_back(samples->get(i)));
    return group;
  };
  return make_indexed_source(count, std::move(lengths), std::move(fetch), options);
}

// Samples encoded when they are needed.
std::unique_ptr<SampleSource> lazy_source(std::shared_ptr<RowStore> rows, std::vector<int64_t> numbers,
                                          EncodeRow encode, RejectLog& rejects, const BatchOptions& options) {
  const auto count = static_cast<int64_t>(numbers.size());
  FetchGroup fetch = [rows, numbers = std::move(numbers), encode = std::move(encode), &rejects](int64_t number) {
    const Row row = rows->row(numbers[static_cast<size_t>(number)]);
    try {
      return encode(row);
    } catch (const RowError& error) {
      rejects.add(error, &row.value);
      throw;
    }
  };
  return make_indexed_source(count, {}, std::move(fetch), options);
}

BatchOptions training_batches(const TrainingDataOptions& options) {
  BatchOptions out = options.batches;
  out.rank /= options.row_sharers, out.ranks /= options.row_sharers;
  return out;
}

BatchOptions validation_batches(const TrainingDataOptions& options) {
  BatchOptions out = options.batches;
  out.batch_size = options.validation_batch_size;
  out.shuffle = out.packing = out.group_by_length = false;
  out.even = false;  // no row counts twice in an evaluation
  return out;
}

void add_validation(TrainingData& data, const TrainingDataOptions& options, const Encoder& encoder,
                    const EncodeRow& encode, RejectLog& rejects) {
  auto samples = std::make_shared<SampleStore>();
  if (!options.cached_validation.empty())
    samples = open_caches(options.cached_validation, made_with(options, encoder));
  else if (!data.validation_rows.empty())
    *samples =
        encode_rows(*data.rows, data.validation_rows, encode, rejects, options.threads, "Encoding validation rows");
  if (samples->size() == 0) return;
  data.validation_report = length_report(*samples);
  data.validation = source_of(samples, encoder, validation_batches(options));
}

void add_streamed(TrainingData& data, const TrainingDataOptions& options, const EncodeRow& encode, RejectLog& rejects) {
  auto open = [&rejects, datasets = options.datasets] { return stream_datasets(datasets.train, datasets, rejects); };
  data.train = make_streamed_source(std::make_unique<EncodedStream>(open, encode, rejects), options.shuffle_buffer,
                                    training_batches(options));
  if (options.datasets.validation.empty()) return;
  DatasetOptions validation = options.datasets;
  validation.train.clear();
  validation.interleave.clear();
  Datasets loaded = load_datasets(validation, rejects);
  data.rows = loaded.rows;
  data.validation_rows = std::move(loaded.validation);
}

}  // namespace

void TrainingDataOptions::check() const {
  const bool has_rows = !datasets.train.empty();
  require(has_rows != !cached.empty(), Fault::Usage,
          has_rows ? "give --dataset or --cached_dataset, not both" : "no data: give --dataset or --cached_dataset");
  require(!streaming || cached.empty(), Fault::Usage, "--streaming true: a cached dataset is not streamed");
  require(!lazy || !streaming, Fault::Usage,
          "--lazy_tokenize true: streamed rows are always encoded when they are needed");
  require(!lazy || !batches.packing, Fault::Usage,
          "--lazy_tokenize true: packing needs all lengths beforehand; leave one of the two out");
  require(threads > 0 && threads <= 256, Fault::Usage, "--dataset_num_proc from 1 to 256");
  require(ahead > 0, Fault::Usage, "at least one micro-batch must be made in advance");
}

SampleStore encode_rows(const RowStore& rows, const std::vector<int64_t>& numbers, const EncodeRow& encode,
                        RejectLog& rejects, int64_t threads, const std::string& title, std::vector<int64_t>* row_of) {
  SampleStore out;
  Progress progress(title, static_cast<int64_t>(numbers.size()));
  constexpr size_t kChunk = 256;
  // Rounds of one chunk per thread; the samples are kept in the rows' order whatever the number of threads.
  for (size_t begin = 0; begin < numbers.size(); begin += kChunk * static_cast<size_t>(threads)) {
    std::vector<std::vector<std::pair<int64_t, Sample>>> made(static_cast<size_t>(threads));  // with their rows
    std::vector<std::exception_ptr> failed(static_cast<size_t>(threads));
    const auto work = [&](size_t t) {
      try {
        const size_t first = begin + t * kChunk, end = std::min(first + kChunk, numbers.size());
        for (size_t i = first; i < end; ++i, progress.advance()) {
          const Row row = rows.row(numbers[i]);
          try {
            for (auto& sample : encode(row)) {
              for (MediaItem& item : sample.media)
                item.content = nullptr;  // pixels are made again when they are needed
              made[t].emplace_back(numbers[i], std::move(sample));
            }
          } catch (const RowError& error) {
            rejects.add(error, &row.value);
          }
        }
      } catch (...) {
        failed[t] = std::current_exception();
      }
    };
    std::vector<std::thread> helpers;
    for (size_t t = 1; t < static_cast<size_t>(threads); ++t) helpers.emplace_back(work, t);
    work(0);
    for (auto& helper : helpers) helper.join();
    for (size_t t = 0; t < static_cast<size_t>(threads); ++t) {
      if (failed[t]) std::rethrow_exception(failed[t]);
      for (const auto& [number, sample] : made[t]) {
        out.add(sample);
        if (row_of) row_of->push_back(number);
      }
    }
  }
  return out;
}

TrainingData prepare_training_data(const TrainingDataOptions& options, const Encoder& encoder, RejectLog& rejects,
                                   EncodeRow encode) {
  options.check();
  if (!encode) encode = [&encoder](const Row& row) { return encoder.encode(row); };
  TrainingData data;
  if (options.streaming) {
    add_streamed(data, options, encode, rejects);
  } else if (!options.cached.empty()) {
    const auto samples = open_caches(options.cached, made_with(options, encoder));
    require(samples->size() > 0, Fault::Data, "the cached dataset is empty");
    data.report = length_report(*samples);
    data.first = samples->get(0);
    data.train = source_of(samples, encoder, training_batches(options));
  } else {
    Datasets loaded = load_datasets(options.datasets, rejects);
    data.rows = loaded.rows;
    data.train_rows = std::move(loaded.train);
    data.validation_rows = std::move(loaded.validation);
    require(!data.train_rows.empty(), Fault::Data,
            "no row is left to train on (--split_dataset_ratio 1 keeps all of them back)");
    if (options.lazy) {
      require(encoder.options().truncation != Truncation::Split, Fault::Usage,
              "--truncation_strategy split needs all rows encoded beforehand: --lazy_tokenize false");
      data.train = lazy_source(data.rows, data.train_rows, encode, rejects, training_batches(options));
    } else {
      std::vector<int64_t> row_of;
      const auto samples = std::make_shared<SampleStore>(
          encode_rows(*data.rows, data.train_rows, encode, rejects, options.threads, "Encoding rows", &row_of));
      rejects.summarize();
      require(samples->size() > 0, Fault::Data, "no row is left to train on: all were left out for the reasons above");
      data.report = length_report(*samples, rejects.count());
      for (auto& row : data.report->longest_rows)
        row.where = data.rows->origin(row_of[static_cast<size_t>(row.sample)]).text();
      data.first = samples->get(0);
      data.train = source_of(samples, encoder, training_batches(options));
    }
  }
  add_validation(data, options, encoder, encode, rejects);
  data.train = make_run_ahead_source(std::move(data.train), static_cast<size_t>(options.ahead));
  return data;
}

}  // namespace apus
