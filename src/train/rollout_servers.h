// SPDX-License-Identifier: Apache-2.0
// Servers (apus rollout) that answer in place of the engine in this process. They are sent the weights as the files of
// a checkpoint or of an adapter, in pieces of a bounded size; every question says which version is to answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/scratch_folder.h"
#include "engine/answer/answer_wire.h"

namespace apus {

class RolloutServers {
 public:
  // `save` writes weights or adapter into a folder; only the rank that `sends` gives them away, the others wait until
  // the servers have them.
  using Save = std::function<void(const std::filesystem::path&)>;
  RolloutServers(const std::vector<std::string>& urls, int64_t timeout, bool sends, Save save);

  // Each server takes further questions as it gets done with its own. One that cannot be reached for `timeout` seconds
  // is lost, which is said; it is asked again before a later round. The last one's loss is an error (Fault::Io). One
  // that began anew is sent the weights again.
  std::vector<FinishedAnswer> answers(const AnswerOrder& order);

 private:
  struct Server {
    std::string url;
    int64_t version = 0;  // that it was sent; 0: none
    bool lost = false;
    std::chrono::steady_clock::time_point lost_at = {};
    int64_t sends = 0;        // how often it was sent weights
    std::mutex sending = {};  // several threads ask it
  };
  struct Work;
  void bring_up_to_date(int64_t version);
  void ask_lost_ones();
  void lose(Server& server, const std::string& why);
  void work_off(Server& server, Work& work);
  void send(Server& server, int64_t version);
  void send_file(const Server& server, const std::filesystem::path& file, int64_t version);
  std::vector<FinishedAnswer> asked(Server& server, const AnswerOrder& order);
  Json post(const Server& server, const std::string& path, const std::string& body, bool bytes = false) const;
  bool alive() const;

  std::deque<Server> servers_;
  const int64_t timeout_;
  const bool sends_;
  const Save save_;
  std::unique_ptr<ScratchFolder> scratch_;  // of the rank that sends
  std::filesystem::path folder_;            // of the version that was saved last
  int64_t saved_ = 0;
};

}  // namespace apus
