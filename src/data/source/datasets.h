// SPDX-License-Identifier: Apache-2.0
// The datasets of a run as rows by number: read, sampled, split, mixed and shuffled as the options say.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/rows/normalize.h"
#include "data/rows/rejects.h"
#include "data/rows/row_store.h"
#include "data/rows/row_stream.h"
#include "data/source/dataset_info.h"
#include "data/source/dataset_ref.h"

namespace apus {

struct DatasetOptions {
  std::vector<std::string> train, validation;  // dataset references
  // Share of the training rows kept for validation, where there is no validation set.
  double split_ratio = 0;
  bool shuffle = true, shuffle_validation = false;
  std::vector<double> interleave;  // shares; empty: one after the other
  Stopping stopping = Stopping::FirstExhausted;
  uint64_t seed = 42;
  NormalizeOptions normalize;
  std::string encoding;  // of text files; empty: UTF-8
  FetchDataset fetch;
  DatasetInfo known;  // names for datasets, with columns of their own
  bool use_hf = false;
  void check() const;
};

struct Datasets {
  std::shared_ptr<RowStore> rows;
  std::vector<int64_t> train, validation;  // numbers of rows, in order
};

// Reads everything. Throws when nothing is left to train on.
Datasets load_datasets(const DatasetOptions& options, RejectLog& rejects);

// The training datasets row by row, for data that are not to be read as a whole.
MixedStream stream_datasets(const std::vector<std::string>& refs, const DatasetOptions& options, RejectLog& rejects);

// `count` of `rows`: fewer are drawn (the first ones without shuffling), more are whole copies and a drawn rest.
std::vector<int64_t> sampled(const std::vector<int64_t>& rows, int64_t count, bool shuffle, uint64_t seed,
                             const std::string& purpose);

// Writes these rows as JSON lines.
void save_rows(const RowStore& rows, const std::vector<int64_t>& numbers, const std::filesystem::path& file);

}  // namespace apus
