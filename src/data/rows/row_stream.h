// SPDX-License-Identifier: Apache-2.0
// Canonical rows one after the other: of the files of one dataset, or mixed from several. Bad rows are recorded and
// passed over. The place that a stream has reached is a small JSON object.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/read/reader.h"
#include "data/rows/normalize.h"
#include "data/rows/rejects.h"
#include "data/source/dataset_ref.h"

namespace apus {

class DatasetStream {
 public:
  DatasetStream(DatasetRef ref, std::vector<std::filesystem::path> files, const NormalizeOptions& normalize,
                RejectLog& rejects, std::string encoding = "");  // of text files; empty: UTF-8
  bool next(Row& row);
  void limit(int64_t rows) { limit_ = rows; }  // good rows to give at most
  void rewind();
  Json position() const;
  void restore(const Json& position);
  const DatasetRef& ref() const { return ref_; }

 private:
  bool next_raw(Row& row);
  DatasetRef ref_;
  std::vector<std::filesystem::path> files_;
  NormalizeOptions normalize_;
  RejectLog& rejects_;
  std::string encoding_;
  std::unique_ptr<RowReader> reader_;
  size_t file_ = 0;
  int64_t given_ = 0;
  std::optional<int64_t> limit_;
};

enum class Stopping { FirstExhausted, AllExhausted };
Stopping stopping_named(const std::string& name);  // Fault::Usage

// Which of several datasets gives the next row, until one or all have ended once. The same for files and for numbers.
class Interleave {
 public:
  Interleave(std::vector<double> probabilities, Stopping stopping, uint64_t seed);
  std::optional<size_t> next();  // nothing: the mixture has ended
  void ended(size_t source);     // this one has given its last row (and would begin again)
  Json position() const;
  void restore(const Json& position);

 private:
  bool over() const;
  std::vector<double> cumulative_;
  Stopping stopping_;
  uint64_t seed_, drawn_ = 0;
  std::vector<bool> ended_;
};

class MixedStream {
 public:
  // Without probabilities: one after the other.
  MixedStream(std::vector<DatasetStream> sources, std::vector<double> probabilities, Stopping stopping, uint64_t seed);
  bool next(Row& row);
  Json position() const;
  void restore(const Json& position);

 private:
  std::vector<DatasetStream> sources_;
  std::optional<Interleave> interleave_;
  size_t current_ = 0;
  std::vector<std::optional<Row>> ahead_;  // interleaved: one row per source, to know its end in time
};

}  // namespace apus
