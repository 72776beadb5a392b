// SPDX-License-Identifier: Apache-2.0
// Who rolls answers out: the engine in this process, on the weights that are trained, or servers (apus rollout) that
// are sent the weights after each update.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"

namespace apus {

struct RolloutServerOptions {
  bool use_vllm = false;
  std::optional<std::string> vllm_mode;  // colocate: this process; server
  std::vector<std::string> vllm_server_base_url, vllm_server_host, vllm_server_port;
  int64_t vllm_server_timeout = 240;  // seconds
  int64_t vllm_max_num_seqs = 256;    // of the engine in this process
  std::vector<std::string> stop_words;

  std::vector<std::string> server_urls() const;  // empty: this process
  void fields(OptionTable& v);
  void check() const;
};

}  // namespace apus
