// SPDX-License-Identifier: Apache-2.0
// Checkpoint folders of a training run: written beside, synced and renamed, so that a folder named checkpoint-N is
// always complete; and the part of them that a resumed run needs beside the weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/state_places.h"

namespace apus {

// A folder that appears under its name whole or not at all. Without commit() nothing stays.
class FolderWriter {
 public:
  explicit FolderWriter(const std::filesystem::path& target);
  ~FolderWriter();
  FolderWriter(const FolderWriter&) = delete;
  FolderWriter& operator=(const FolderWriter&) = delete;
  const std::filesystem::path& dir() const { return partial_; }  // write here
  void commit();                                                 // replaces an older folder of that name

 private:
  std::filesystem::path target_, partial_;
  bool done_ = false;
};

// Removes what killed processes left half-written, and folders whose removal was cut short.
void remove_leftovers(const std::filesystem::path& run_dir);
// Keeps the newest `limit` checkpoints; those of `keep` count and are never removed. limit 0: all stay.
void rotate_checkpoints(const std::filesystem::path& run_dir, int64_t limit,
                        const std::vector<std::filesystem::path>& keep);
// run_dir/name -> target, replaced atomically.
void point_link(const std::filesystem::path& run_dir, const std::string& name, const std::filesystem::path& target);

struct RunState {
  int64_t step = 0;   // optimizer steps done
  int64_t epoch = 0;  // the one the next batch belongs to
  Json data;          // the source's position
  Json trainer;       // trainer_state.json, with HuggingFace's keys and no others
  Json progress;      // what the trainer counts besides
  // Settings that must be the same for the run to go on as it would have.
  Json exact;
  Json noted;             // settings that may change; a change is said
  std::string optimizer;  // its kind
  // Its state ("<parameter>/<what>"), in as many slices as ranks shared it out: rows of each tensor, as part_of() cuts
  // them. One: whole.
  std::vector<std::map<std::string, at::Tensor>> optimizer_slices;
  // Whether ranks shared out the model: what the slices then are of their parameters. Empty: an older build did not
  // say it.
  bool in_parts = false;
  std::vector<StatePlaces> optimizer_places;
};

// The slice-th of `slices` of an optimizer's state that was saved in others. What need not be copied is not.
std::map<std::string, at::Tensor> state_slice(const RunState& state, int slice, int slices);

// trainer_state.json and apus_state.json.
void write_state(const std::filesystem::path& dir, const RunState& state);
// optimizer.safetensors, or optimizer-0000I-of-0000N.safetensors.
void write_optimizer(const std::filesystem::path& dir, const std::string& kind,
                     const std::map<std::string, at::Tensor>& state, int slice = 0, int slices = 1,
                     const StatePlaces* places = nullptr);
// Fault::Usage when the folder does not hold the state that is asked for.
RunState read_state(const std::filesystem::path& dir, bool with_optimizer = true);

// Throws Fault::Usage naming what differs in `exact`; returns how the run is resumed: "with another setting: ...".
std::vector<std::string> check_resume(const RunState& saved, const RunState& mine);

}  // namespace apus
