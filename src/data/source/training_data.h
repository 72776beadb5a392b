// SPDX-License-Identifier: Apache-2.0
// Everything between the options of a training command and the micro-batches it trains on.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/encode/encoder.h"
#include "data/encode/report.h"
#include "data/encode/sample_store.h"
#include "data/source/datasets.h"
#include "data/source/sample_source.h"

namespace apus {

struct TrainingDataOptions {
  DatasetOptions datasets;
  std::vector<std::string> cached, cached_validation;  // folders of encoded samples
  Json cached_as = Json::object();                     // what these depend on besides the encoder
  bool streaming = false;
  bool lazy = false;  // encode when a sample is needed, instead of all beforehand
  int64_t shuffle_buffer = 1000;
  int64_t threads = 1;   // that encode
  int64_t ahead = 32;    // micro-batches made in advance
  BatchOptions batches;  // of training
  int64_t validation_batch_size = 1;
  int64_t row_sharers = 1;  // so many neighbouring ranks train on the same rows, and evaluate on rows of their own
  void check() const;
};

struct TrainingData {
  std::unique_ptr<SampleSource> train, validation;        // validation may be absent
  std::optional<LengthReport> report, validation_report;  // absent where lengths are not known beforehand
  std::optional<Sample> first;                            // for the log
  std::shared_ptr<RowStore> rows;
  // Which of the rows are trained on and which are kept back; empty when streamed or cached.
  std::vector<int64_t> train_rows, validation_rows;
};

// `encoder` and `rejects` must outlive what comes out. Rows become samples by `encode`; null: as the encoder does it.
// Throws when nothing is left to train on.
TrainingData prepare_training_data(const TrainingDataOptions& options, const Encoder& encoder, RejectLog& rejects,
                                   EncodeRow encode = nullptr);

// The samples of rows, in order; rows that give none are recorded. `row_of`: the row of each sample.
SampleStore encode_rows(const RowStore& rows, const std::vector<int64_t>& numbers, const EncodeRow& encode,
                        RejectLog& rejects, int64_t threads, const std::string& title,
                        std::vector<int64_t>* row_of = nullptr);

}  // namespace apus
