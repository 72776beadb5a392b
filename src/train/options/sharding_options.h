// SPDX-License-Identifier: Apache-2.0
// What several ranks share out instead of each doing or holding all of it: weights, gradients and state by --deepspeed,
// --fsdp and their files, the tokens of rows by --sequence_parallel_size, matrices by --tensor_model_parallel_size,
// experts by --expert_model_parallel_size, layers by --pipeline_model_parallel_size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "parallel/placement/stages.h"
#include "train/options/loop_options.h"

namespace apus {

struct Sharding {
  // 1: the optimizer's state; 2: also gradients; 3: also parameters. 0: nothing.
  int stage = 0;
  bool release_after_forward = true;  // of 3: layers are gathered again for their backward pass
  // Slices, the optimizer's state and its step are on the host.
  bool on_host = false;
  bool wide_sums = false;  // of gradients, over micro-batches and ranks: in f32
  std::optional<int64_t> bucket_elements;
  // Of 3: so many ranks share the parameters out, and other groups hold the same; 0: those of a machine; nothing: all.
  std::optional<int64_t> group;
};

struct ShardingOptions {
  std::optional<std::string> deepspeed, fsdp;
  Json fsdp_config;
  std::optional<bool> grad_reduce_in_fp32;
  std::optional<int64_t> shard_group_size;
  int64_t sequence_parallel_size = 1;      // ranks that share out the tokens of each row
  int64_t tensor_model_parallel_size = 1;  // ranks that share out the matrices of the model
  bool sequence_parallel = false;          // and the tokens between these
  int64_t expert_model_parallel_size = 1;  // ranks that share out the experts of each layer, and read other tokens
  // Ranks that each run some of the layers, one behind the other.
  int64_t pipeline_model_parallel_size = 1;
  int64_t virtual_pipeline_model_parallel_size = 1;  // pieces of the layers that each of them runs in turn
  std::optional<int64_t> decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers;
  std::string pipeline_model_parallel_layout;
  double ddp_timeout = 1800;  // seconds
  int64_t max_restarts = 0;   // of processes that were lost
  int64_t ddp_bucket_cap_mb = 25;
  bool broadcast_weights = false;

  void fields(OptionTable& v);
  // Reads the files that are named; what has no meaning here is said in a note.
  void resolve(OptionTable& v);
  const Sharding& sharding() const { return sharding_; }
  int64_t row_sharers() const {  // read the same rows
    return sequence_parallel_size * tensor_model_parallel_size * pipeline_model_parallel_size;
  }
  int64_t least_ranks() const;
  // Whether ranks hold different parts of the model's matrices, experts or layers.
  bool shares_parts() const {
    return tensor_model_parallel_size * expert_model_parallel_size * pipeline_model_parallel_size > 1;
  }
  StageWish stages() const {
    return {pipeline_model_parallel_size, virtual_pipeline_model_parallel_size, decoder_first_pipeline_num_layers,
            decoder_last_pipeline_num_layers, pipeline_model_parallel_layout};
  }

  // What a DeepSpeed file says of settings that have an option here: it must say the same.
  struct Claim {
    std::string key, value;
  };
  const std::vector<Claim>& claims() const { return claims_; }
  void check_claims(const LoopOptions& loop, int64_t ranks) const;

 private:
  void read_deepspeed(const std::string& path, OptionTable& v);
  void read_fsdp_words(const std::string& words);
  void read_fsdp_config(const Json& config, const std::string& where, OptionTable& v);
  void take_shard_group();
  void take_sums(const Json& type, const std::string& where);
  Sharding sharding_;
  std::vector<Claim> claims_;
};

}  // namespace apus
