// SPDX-License-Identifier: Apache-2.0
// The data of a training run as micro-batches of samples, from the options of its command.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/train.h"
#include "data/source/sample_source.h"
#include "train/algorithm.h"

namespace apus {

struct TrainData {
  std::shared_ptr<void> keep;                 // what the sources refer to
  std::unique_ptr<SampleSource> train, eval;  // eval: null when there are no rows for it
  Json exact;                                 // what a resumed run must find unchanged
  std::string train_text, eval_text;          // "Dataset Token Length: ...", for the log and its last object
  std::string rows_text;                      // what all ranks must have read alike
  int64_t longest = 0;                        // tokens of the longest training row; 0: not known beforehand
  int64_t rows = 0, rejected = 0;             // samples for training, and rows that were left out; known with `longest`
  // Of a model that sees: what became of the media so far, in words, for the log, and as numbers for the plan. Null: it
  // reads text only.
  std::function<std::string()> media_line;
  std::function<MediaFacts()> media;
};

struct DataShare {  // micro-batch k belongs to rank k % ranks
  int64_t rank = 0, ranks = 1;
  bool speaks = true;         // of several with the same share one writes of it
  int64_t group_sharers = 1;  // so many neighbours answer the same questions in training
};

// `model_dir`: the checkpoint whose tokenizer and chat template are used. Reports and rejected rows go to `run_dir`,
// from the first rank only.
// Rows become samples as `algorithm` wants; it must outlive the data.
TrainData open_train_data(const TrainRun& options, const Algorithm& algorithm, const std::filesystem::path& model_dir,
                          const std::filesystem::path& run_dir, DataShare share = {});

// Rows of other datasets as samples with their answers, dealt out in micro-batches of `rows`, as many to each rank.
TrainData open_shown_rows(const TrainRun& options, const std::vector<std::string>& datasets, int64_t rows,
                          const std::filesystem::path& model_dir, const std::filesystem::path& run_dir,
                          DataShare share = {});

// Encodes the rows once for many runs: <folder>/train, and <folder>/val where there are rows for validation.
void cache_train_data(const TemplateOptions& prompt, const DataOptions& data, const HubFlags& hub,
                      const CachedRows& kind, const std::filesystem::path& model_dir,
                      const std::filesystem::path& folder);

struct CalibrationRows {
  // Tokens of the first rows for training, one behind the other, cut into blocks; what is left over is dropped, unless
  // there is no whole block.
  std::vector<std::vector<int64_t>> blocks;
  // The tokens of some further rows, each for itself; of the same ones where there are no further ones.
  std::vector<std::vector<int64_t>> judged;
  bool judged_unseen = false;
};
CalibrationRows calibration_rows(const TemplateOptions& prompt, const DataOptions& data, const HubFlags& hub,
                                 const std::filesystem::path& model_dir, int64_t rows, int64_t block);

}  // namespace apus
