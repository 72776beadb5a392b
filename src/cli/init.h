// SPDX-License-Identifier: Apache-2.0
// The options of `apus init`; its body is run/init.cpp.
#pragma once

#include "cli/option_groups.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct InitOptions {
  RunOptions common;
  std::string output_dir;
  std::string preset;       // "tiny", "qwen2.5-0.5b", ...; or:
  std::string config;       // a config.json, or a folder that holds one
  std::string tokenizer;    // a folder; empty: the bundled one
  std::string torch_dtype;  // empty: the config's, bfloat16 where it names none
  std::string max_shard_size = "5GB";
  int64_t max_shard_bytes = 0;  // from max_shard_size
  bool exist_ok = false;        // write into a folder that is not empty

  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void rehearse(Rehearsal& r) const;
};

}  // namespace apus
