// SPDX-License-Identifier: Apache-2.0
// Uploads a run's checkpoints while it trains on, by --hub_strategy. One upload at a time, in a thread of its own; of
// the models that wait for it only the newest is sent.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "cli/push_options.h"

namespace apus {

class PushedCheckpoints {
 public:
  // Makes the repository: what is wrong with token, name or network is thrown before anything is trained.
  PushedCheckpoints(const RunPushOptions& options, const HubFlags& hub);
  ~PushedCheckpoints();  // breaks off what is under way
  PushedCheckpoints(const PushedCheckpoints&) = delete;
  PushedCheckpoints& operator=(const PushedCheckpoints&) = delete;

  void saved(const std::filesystem::path& checkpoint);
  // The model of the run: waits until the hub has it. Fault::Io with the command that uploads it later.
  void finish(const std::filesystem::path& checkpoint);

 private:
  struct Waiting {
    std::filesystem::path twin, checkpoint;
    bool whole = false;  // beside the model all of the checkpoint
  };
  void work();
  void send(const Waiting& one) const;
  void send_model(const std::filesystem::path& folder, const std::string& message) const;

  RunPushOptions options_;
  UploadSpec spec_;
  std::atomic<bool> abandoned_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace apus
