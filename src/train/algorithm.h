// SPDX-License-Identifier: Apache-2.0
// What makes one training algorithm different from another: the samples it makes of a row, what it collects, and its
// loss. The trainer owns the rest. Its options are registered apart, without the tensor
// library (train/options/algorithm_options.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/encode/encoder.h"
#include "data/source/sample_source.h"
#include "engine/answer/sampling_fields.h"
#include "train/actors.h"
#include "train/batch.h"
#include "train/forward.h"
#include "train/options/algorithm_options.h"
#include "train/options/loop_options.h"

namespace apus {

// Two scalars, detached. What is shown is the quotient of their sums over everything since the last line.
struct Ratio {
  at::Tensor sum, count;
};

// Never a mean: the trainer divides the sum by the count of all micro-batches and ranks of the step.
struct Loss {
  at::Tensor sum;  // scalar, differentiable
  std::map<std::string, Ratio> metrics;
};

// The micro-batches of one step of the optimizer.
using Update = std::vector<Batch>;

class Chat;  // engine/answer/chat.h

// What an algorithm is told of the run, before it collects anything.
struct RunSetting {
  const LoopOptions& loop;
  int64_t rank = 0, ranks = 1;                 // that share the rows
  std::shared_ptr<const Tokenizer> tokenizer;  // null unless the algorithm asks its rows, or names tokens
  Sampling sampling;                           // of rollouts, as the flags and the checkpoint say it
  std::shared_ptr<const Chat> chat = nullptr;  // of a model that rolls out: how it is spoken with
  std::filesystem::path output_dir;            // of this rank's files; empty: none are written
  uint64_t seed = 42;
  c10::Device device = c10::Device(c10::kCPU);
  // What several texts begin with may be computed once for all of them: it comes to the same here.
  bool may_share_prefix = false;
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual void begin(const RunSetting&) {}
  // Rows of its own instead of a dataset (AlgorithmOptions::brings_rows). After begin().
  virtual std::unique_ptr<SampleSource> own_rows() { return nullptr; }
  // The samples of a row: one, a pair, a group (Sample::grouped), a prompt. Thread-safe.
  virtual std::vector<Sample> encode(const Row& row, const Encoder& encoder) const { return encoder.encode(row); }

  // A collection is what --gradient_accumulation_steps micro-batches of samples become: the updates made of them, one
  // after the other. Minibatches and passes over one collection are further updates; answers are rolled out and scored
  // here. With gradients off it is an evaluation that collects.
  virtual std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches);
  // Absent: as many as --gradient_accumulation_steps.
  virtual std::optional<int64_t> batches_per_collection() const { return std::nullopt; }
  // How many updates every collection gives, also the last one of an epoch, which may have fewer samples or none on
  // some rank: the schedule must know it beforehand.
  virtual int64_t updates_per_collection() const { return 1; }
  // True: what is collected depends on the weights as they stand, and cannot be collected again later. Such a run is
  // saved between collections only. Otherwise a resumed run collects again from the same samples and goes on with the
  // update at which it stopped.
  virtual bool collects_by_policy() const { return false; }

  // Losses that look at the whole update: before its passes, with the weights as they are then, `batches` get columns
  // for them. All ranks call it together, with gradients off.
  virtual bool looks_at_updates() const { return false; }
  virtual void look_at(Actors& /*actors*/, Update& /*batches*/) {}

  // What this batch adds to the divisor of the step's loss, known before any forward pass.
  virtual double count(const Batch& batch) const = 0;
  // `batch` must outlive the backward pass. With gradients off this is the evaluation's loss.
  virtual Loss loss(Actors& actors, Batch& batch, const Forward& forward) = 0;

  // After the losses of an evaluation's last batch, where all ranks go in step: what it has to say of all of them, by
  // names that get "eval_" in front.
  virtual Json evaluated(Comm& /*ranks*/) { return Json::object(); }

  // Before an evaluation and a checkpoint, on all ranks together: what is under way elsewhere comes in.
  virtual void settle(Actors& /*actors*/) {}
  // What it remembers of the run besides the weights, for a checkpoint; the same on every rank that goes on from it.
  virtual Json state() const { return Json::object(); }
  virtual void restore(const Json& /*state*/) {}
};

// A constant in the algorithm's file makes it known: `const RegisterAlgorithm<Sft> sft("sft");`. Algorithm::Options is
// the struct of its options.
using MakeAlgorithm = std::function<std::unique_ptr<Algorithm>(const AlgorithmOptions&)>;
template <class A>
struct RegisterAlgorithm {
  explicit RegisterAlgorithm(const char* name) {
    Registry<MakeAlgorithm>::of().add(name, [](const AlgorithmOptions& options) -> std::unique_ptr<Algorithm> {
      return std::make_unique<A>(options.as<typename A::Options>());
    });
  }
};
std::unique_ptr<Algorithm> make_algorithm(const std::string& name, const AlgorithmOptions& options);

}  // namespace apus
