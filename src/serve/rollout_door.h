// SPDX-License-Identifier: Apache-2.0
// What a trainer asks of a server that rolls out for it (apus rollout): it sends weights as the files of a checkpoint
// or of an adapter, piece by piece, and says when they are complete. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "engine/answer/text_engine.h"
#include "environment/environment_options.h"

namespace apus {

class RolloutDoor {
 public:
  struct Spec {
    std::filesystem::path folder;  // where what comes is written; a folder in it for each arrival
    int64_t most_bytes = 0;        // of one version
    TextEngine* engine = nullptr;
    // Takes the weights of a checkpoint's folder instead of those the engine has; the folder stays until the next ones.
    std::function<void(const std::filesystem::path&)> read_model;
    std::vector<std::string> parameters;  // the model's, by name
    EnvironmentOptions environment;       // of conversations that are asked for as messages (/infer)
  };
  explicit RolloutDoor(Spec spec);
  ~RolloutDoor();

  // The next bytes of a file: `begin` is how many came before.
  void receive(int64_t version, const std::string& file, int64_t begin, const std::string& bytes);
  void finish(int64_t version);  // all files of a version are here: from now on it answers
  int64_t version() const;       // 0: the weights that the server began with
  // The adapter that requests without one are answered by; empty: the model itself.
  std::string adapter() const;
  const Spec& spec() const { return spec_; }

 private:
  std::filesystem::path arriving() const;
  const Spec spec_;
  mutable std::mutex mutex_;
  int64_t version_ = 0;
  // What comes: its version, how much of it is here, and how many came before. A trainer that began anew sends a
  // version that may be in use, so that places are called by the latter.
  int64_t coming_ = 0, bytes_ = 0, arrivals_ = 0;
  bool incomplete_ = false;
  std::string adapter_;
  std::filesystem::path in_use_;  // the version's folder
};

}  // namespace apus
