// SPDX-License-Identifier: Apache-2.0
// Folders that a command puts onto a hub when it has written them.
#pragma once

#include <filesystem>

#include "cli/option_groups.h"
#include "hub/upload.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct PushOptions {
  bool push_to_hub = false, hub_private_repo = false;
  std::string hub_model_id, commit_message;
  void fields(OptionTable& v);
  void check() const;
  // Nothing has been sent; the hub that --use_hf chooses.
  UploadSpec upload(const HubFlags& hub) const;
  void rehearse(Rehearsal& r, const HubFlags& hub) const;
};

// Of a training run, whose checkpoints may go while it trains.
struct RunPushOptions : PushOptions {
  std::string hub_strategy = "every_save";
  void fields(OptionTable& v);
};

// The files of a folder, a model card among them where the folder has none of its own.
std::vector<UploadFile> files_with_card(const std::filesystem::path& folder, const std::string& into = "",
                                        const std::vector<std::string>& leave = {});
// Sends the files with a progress bar, and says where they are.
void push_with_progress(UploadSpec spec);

}  // namespace apus
