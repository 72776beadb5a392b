// SPDX-License-Identifier: Apache-2.0
// A teacher behind a server: what words it finds likeliest in the places of a text, asked through OpenAI's completions
// with vLLM's prompt_logprobs. No tensor library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus {

// The likeliest tokens of one place, best first, with their log-probabilities among all.
struct LikelyTokens {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
};

class TeacherServer {
 public:
  // `url`: up to /v1. Fault::Usage: it is no such server.
  TeacherServer(std::string url, int64_t timeout);

  struct Text {
    std::vector<int32_t> ids;
    std::vector<size_t> places;  // in ascending order, none the first: what stands there is asked about
  };
  // The `k` likeliest of every place of every text; several texts at a time.
  std::vector<std::vector<LikelyTokens>> likeliest(const std::vector<Text>& texts, int64_t k) const;
  const std::string& model() const { return model_; }  // its name there

 private:
  std::vector<LikelyTokens> asked(const Text& text, int64_t k) const;
  std::string reply(const std::string& path, const std::string* body) const;

  std::string url_, model_;
  const int64_t timeout_;  // seconds
};

}  // namespace apus
