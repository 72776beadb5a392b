// SPDX-License-Identifier: Apache-2.0
// The options of `apus score`; its body is run/score.cpp.
#pragma once

#include "cli/answer_ranks.h"
#include "quant/wish.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h
struct DeviceFacts;
struct PlanSpec;

struct ScoreOptions {
  ModelOptions model;
  PlacementOptions placement;
  AdapterOptions adapters;
  TemplateOptions prompt;
  RankOptions mesh;
  RunOptions common;
  quant::Wish quantise;  // of a plain checkpoint's weights, while they are loaded
  // Rows {"input_ids", "labels"?} | {"text"} | {"messages"}; "-": standard input; #N behind a name: its first N rows.
  std::vector<std::string> dataset;
  struct File {
    std::string path;
    std::optional<int64_t> rows;  // the first so many; none: all
  };
  std::vector<File> files() const;
  std::string encoding;               // of text files; empty: UTF-8
  std::string result_path;            // empty or "-": standard output
  std::string dump_logits;            // safetensors file; empty: none
  bool packed = true;                 // many rows in one forward, or one by one
  int64_t max_batched_tokens = 4096;  // tokens of one packed forward
  bool strict = false;

  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void fetch() {
    model.fetch();
    mesh.settle(model);
  }
  int64_t ranks() const { return mesh.ranks_of_copy(); }
  std::filesystem::path ranks_dir() const;
  void rehearse(Rehearsal& r) const;
  void prepare_plan(OptionTable& v, int64_t devices);
  PlanSpec plan_spec(const Json& config, const DeviceFacts& device, int64_t devices = 1) const;
};

}  // namespace apus
