// SPDX-License-Identifier: Apache-2.0
#include "data/source/datasets.h"

#include <algorithm>
#include <numeric>

#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/random.h"

namespace apus {

namespace {

using Numbers = std::vector<int64_t>;

std::vector<DatasetStream> open_streams(const std::vector<std::string>& refs, const DatasetOptions& options,
                                        RejectLog& rejects) {
  std::vector<DatasetStream> streams;
  for (const auto& text : refs) {
    const auto [ref, columns] = options.known.resolve(parse_dataset_ref(text), options.use_hf);
    NormalizeOptions normalize = options.normalize;
    normalize.columns.insert(columns.begin(), columns.end());  // --columns wins
    streams.emplace_back(ref, dataset_files(ref, options.fetch), normalize, rejects, options.encoding);
  }
  return streams;
}

Numbers read_all(DatasetStream& stream, RowStore& rows) {
  Progress progress("Reading " + stream.ref().text, 0);
  Numbers numbers;
  for (Row row; stream.next(row); progress.advance()) numbers.push_back(rows.add(row));
  return numbers;
}

void shuffle_numbers(Numbers& numbers, uint64_t seed, const std::string& purpose) {
  Random(seed, purpose).shuffle(std::span<int64_t>(numbers));
}

// As HuggingFace's interleave_datasets by probabilities.
Numbers interleaved(const std::vector<Numbers>& parts, const DatasetOptions& options) {
  require(options.interleave.size() == parts.size(), Fault::Usage, "--interleave_prob has ", options.interleave.size(),
          " shares for ", parts.size(), " datasets");
  Interleave order(options.interleave, options.stopping, options.seed);
  std::vector<size_t> at(parts.size(), 0);
  Numbers out;
  while (const auto which = order.next()) {
    out.push_back(parts[*which][at[*which]++]);
    if (at[*which] < parts[*which].size()) continue;
    at[*which] = 0;
    order.ended(*which);
  }
  return out;
}

struct Split {
  Numbers train, validation;
};

// Rows of one dataset into what is trained on and what is kept back, then as many of each as were asked for.
Split split_rows(Numbers rows, const DatasetRef& ref, const DatasetOptions& options, const std::string& purpose) {
  const int64_t wanted = ref.count.value_or(static_cast<int64_t>(rows.size()));
  if (options.split_ratio <= 0 || !options.validation.empty())
    return {sampled(rows, wanted, options.shuffle, options.seed, purpose), {}};
  const auto usable = std::min<int64_t>(wanted, static_cast<int64_t>(rows.size()));
  const int64_t kept = std::max<int64_t>(static_cast<int64_t>(static_cast<double>(usable) * options.split_ratio), 1);
  if (options.split_ratio >= 1) return {{}, sampled(rows, wanted, options.shuffle, options.seed, purpose)};
  require(kept < static_cast<int64_t>(rows.size()), Fault::Data, "dataset ", ref.text, ": ", rows.size(),
          " usable rows are too few to keep ", kept, " back for validation (--split_dataset_ratio)");
  if (options.shuffle) shuffle_numbers(rows, options.seed, purpose + ".split");
  // Without shuffling the last rows are kept back, as train_test_split does.
  Split split{Numbers(rows.begin(), rows.end() - kept), Numbers(rows.end() - kept, rows.end())};
  split.train = sampled(split.train, wanted - kept, options.shuffle, options.seed, purpose);
  return split;
}

}  // namespace

void DatasetOptions::check() const {
  require(split_ratio >= 0 && split_ratio <= 1, Fault::Usage, "--split_dataset_ratio ", split_ratio, ": from 0 to 1");
  require(interleave.empty() || interleave.size() == train.size(), Fault::Usage, "--interleave_prob has ",
          interleave.size(), " shares for ", train.size(), " datasets");
}

std::vector<int64_t> sampled(const Numbers& rows, int64_t count, bool shuffle, uint64_t seed,
                             const std::string& purpose) {
  const auto have = static_cast<int64_t>(rows.size());
  if (have == 0 || count == have) return rows;
  Numbers out;
  for (int64_t copy = 0; copy < count / have; ++copy) out.insert(out.end(), rows.begin(), rows.end());
  Numbers order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  if (shuffle) shuffle_numbers(order, seed, purpose + ".sample");
  for (int64_t i = 0; i < count % have; ++i) out.push_back(rows[static_cast<size_t>(order[static_cast<size_t>(i)])]);
  return out;
}

Datasets load_datasets(const DatasetOptions& options, RejectLog& rejects) {
  options.check();
  Datasets out;
  out.rows = std::make_shared<RowStore>();
  std::vector<DatasetStream> streams = open_streams(options.train, options, rejects);
  std::vector<Numbers> parts;
  for (size_t i = 0; i < streams.size(); ++i) {
    Numbers rows = read_all(streams[i], *out.rows);
    require(!rows.empty(), Fault::Data, "dataset ", streams[i].ref().text, " has no usable row",
            rejects.count() ? " (all were left out for the reasons above)" : ": it is empty");
    Split split = split_rows(std::move(rows), streams[i].ref(), options, str("data.", i));
    parts.push_back(std::move(split.train));
    out.validation.insert(out.validation.end(), split.validation.begin(), split.validation.end());
  }
  if (!options.interleave.empty()) {
    out.train = interleaved(parts, options);
  } else {
    for (const auto& part : parts) out.train.insert(out.train.end(), part.begin(), part.end());
    if (options.shuffle) shuffle_numbers(out.train, options.seed, "data.shuffle");
  }
  std::vector<DatasetStream> validation = open_streams(options.validation, options, rejects);
  for (size_t i = 0; i < validation.size(); ++i) {
    const Numbers rows = read_all(validation[i], *out.rows);
    require(!rows.empty(), Fault::Data, "validation dataset ", validation[i].ref().text, " has no usable row");
    const Numbers part = sampled(rows, validation[i].ref().count.value_or(static_cast<int64_t>(rows.size())),
                                 options.shuffle_validation, options.seed, str("data.validation.", i));
    out.validation.insert(out.validation.end(), part.begin(), part.end());
  }
  if (options.shuffle_validation) shuffle_numbers(out.validation, options.seed, "data.shuffle.validation");
  return out;
}

MixedStream stream_datasets(const std::vector<std::string>& refs, const DatasetOptions& options, RejectLog& rejects) {
  std::vector<DatasetStream> streams = open_streams(refs, options, rejects);
  for (auto& stream : streams)
    if (stream.ref().count) stream.limit(*stream.ref().count);
  return {std::move(streams), refs.size() > 1 ? options.interleave : std::vector<double>{}, options.stopping,
          options.seed};
}

void save_rows(const RowStore& rows, const Numbers& numbers, const std::filesystem::path& file) {
  AtomicFile out(file);
  for (const int64_t number : numbers) out.write(json_text(rows.row(number).value) + "\n");
  out.commit();
}

}  // namespace apus
