// SPDX-License-Identifier: Apache-2.0
// Distillation: the model learns the probabilities that a teacher gives every token of an answer. The answer is that of
// the row, of the model itself (on policy), or of the teacher; the teacher may have been
// told more than the model (teacher_prompt).
#pragma once

#include <filesystem>

#include "algos/answers.h"
#include "algos/options/gkd_options.h"
#include "algos/teacher_server.h"
#include "ops/shared_head.h"
#include "train/algorithm.h"
#include "train/rollout.h"

namespace apus {

class Gkd final : public Algorithm {
 public:
  using Options = GkdOptions;
  explicit Gkd(GkdOptions options) : o_(std::move(options)) {}
  void begin(const RunSetting& setting) override;
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches) override;
  bool collects_by_policy() const override { return o_.lmbda > 0; }
  double count(const Batch& batch) const override { return static_cast<double>(batch.trained); }
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) override;

 private:
  // What was said behind a prompt, and which tokens of it the speaker said (empty: all).
  struct Said {
    std::vector<int32_t> ids;
    std::vector<uint8_t> own;
    bool cut = false;
    std::string text;
    // Of several turns: what the environment asked, and all pictures. Empty: the row's own question.
    std::vector<int32_t> prompt = {};
    std::vector<MediaItem> media = {};
  };
  std::vector<Said> said_to(Actors& actors, const std::vector<const Sample*>& asked, Rollout& engine, bool by_policy);
  Reference teacher(const Actors& actors) const;
  std::optional<ops::WordShare> teacher_words(const Actors& actors) const;
  bool asks_policy(int64_t step) const;
  void answer(Actors& actors, std::vector<Samples>& rows, Rollout& engine, bool by_policy);
  size_t server_of(const Row& row) const;
  void ask_servers(Update& update) const;
  std::vector<std::vector<LikelyTokens>> likeliest(const std::vector<TeacherServer::Text>& texts,
                                                   const std::vector<size_t>& server_of) const;
  const Batch& read_by_teacher(const Batch& batch) const;

  const GkdOptions o_;
  Sampling sampling_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::filesystem::path output_dir_;
  c10::Device device_ = c10::Device(c10::kCPU);
  uint64_t seed_ = 42;
  int64_t rank_ = 0, ranks_ = 1;
  std::unique_ptr<Rollout> lecturer_;        // of a teacher that answers
  std::unique_ptr<AnswerRounds> rounds_;     // of answers in several turns; null: of one turn
  std::vector<TeacherServer> servers_;       // none: the teacher is in this process
  std::map<std::string, size_t> taught_by_;  // tags, where there are several
  std::vector<Batch> told_;             // what the teacher reads instead of each batch of the collection, where it does
  std::map<std::string, Ratio> noted_;  // of a collection, until a loss carries them out
};

}  // namespace apus
