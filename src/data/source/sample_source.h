// SPDX-License-Identifier: Apache-2.0
// Micro-batches of samples for one rank, epoch after epoch; a later run can go on from any place. The samples are known
// by number or streamed, and a thread may prepare them ahead of time.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/encode/packing.h"
#include "data/encode/sample.h"

namespace apus {

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // Goes to the beginning of the epoch, whose order depends on the seed and the epoch alone.
  virtual void start(int64_t epoch) = 0;
  virtual std::optional<Samples> next() = 0;  // a micro-batch of this rank; nothing at the epoch's end
  // A micro-batch of any rank, for one whose next() has given nothing yet. Absent: there is none without going on.
  virtual std::optional<Samples> any() { return std::nullopt; }
  virtual int64_t size() const = 0;   // micro-batches of an epoch (of this rank); -1: not known
  virtual Json position() const = 0;  // from which restore() gives the same next() again
  virtual void restore(const Json& position) = 0;
};

struct BatchOptions {
  int64_t batch_size = 1;  // groups of a micro-batch (a sample alone is one); with packing: packs
  bool packing = false;
  int64_t packing_length = 0;
  PackingStrategy strategy = PackingStrategy::BestFit;
  bool group_by_length = false;  // samples of like length together (no effect with packing)
  bool shuffle = true;
  uint64_t seed = 42;
  int64_t rank = 0, ranks = 1;  // micro-batch k belongs to rank k % ranks
  // Every rank gets the same number of micro-batches: ranks that lack one get one of the first again.
  bool even = true;
  void check() const;
};

// Groups of samples known by number, and the tokens of each (needed for packing and for grouping by length). `fetch`
// may refuse one (RowError, already recorded): another one takes its place.
using FetchGroup = std::function<Samples(int64_t number)>;
std::unique_ptr<SampleSource> make_indexed_source(int64_t count, std::vector<int64_t> lengths, FetchGroup fetch,
                                                  const BatchOptions& options);

// Samples of rows that come one after the other.
struct SampleStream {
  virtual ~SampleStream() = default;
  virtual void rewind() = 0;
  // The samples of the next row: none, one or (when split) several; false at the end.
  virtual bool next(Samples& samples) = 0;
  virtual Json position() const = 0;
  virtual void restore(const Json& position) = 0;
};
// Shuffled within blocks of `buffer` rows; samples of a block that do not fill a micro-batch join the next block.
std::unique_ptr<SampleSource> make_streamed_source(std::unique_ptr<SampleStream> stream, int64_t buffer,
                                                   const BatchOptions& options);

// The same source with up to `ahead` micro-batches made in advance on another thread.
std::unique_ptr<SampleSource> make_run_ahead_source(std::unique_ptr<SampleSource> inner, size_t ahead);

}  // namespace apus
