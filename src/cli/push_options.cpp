// SPDX-License-Identifier: Apache-2.0
#include "cli/push_options.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "checkpoint/model_card.h"
#include "cli/rehearsal.h"

namespace apus {

void PushOptions::fields(OptionTable& v) {
  v("push_to_hub", push_to_hub,
    "upload the result to --hub_model_id, with a card that says how it was made; to ModelScope, or with --use_hf true "
    "to HuggingFace");
  v("hub_model_id", hub_model_id, "the repository to upload to: owner/name; made if it is not there")
      .shown_default("none");
  v("hub_private_repo", hub_private_repo, "a repository that is made for the upload is private");
  v("commit_message", commit_message, "what the upload's commit is called")
      .shown_default("named after what is uploaded");
}

void PushOptions::check() const {
  require(push_to_hub || hub_model_id.empty(), Fault::Usage, "--hub_model_id ", hub_model_id,
          " needs --push_to_hub true beside it, which uploads there");
  require(!push_to_hub || !hub_model_id.empty(), Fault::Usage,
          "--push_to_hub true needs --hub_model_id owner/name: where to");
  require(!push_to_hub || is_repo_id(hub_model_id), Fault::Usage, "--hub_model_id ", hub_model_id,
          ": owner/name is needed, as it stands in the address of the repository's page");
}

UploadSpec PushOptions::upload(const HubFlags& hub) const {
  UploadSpec spec;
  spec.id = hub_model_id;
  spec.hub = HubOptions::from_environment(hub.use_hf ? HubKind::HuggingFace : HubKind::ModelScope);
  if (hub.hub_token) spec.hub.token = *hub.hub_token;
  spec.is_private = hub_private_repo;
  if (!commit_message.empty()) spec.message = commit_message;
  return spec;
}

void PushOptions::rehearse(Rehearsal& r, const HubFlags& hub) const {
  if (!push_to_hub) return;
  const UploadSpec spec = upload(hub);
  r.right("upload", repo_page(spec) + (spec.hub.token.empty() ? "" : ", with a token"));
  if (spec.hub.token.empty()) r.doubt("--push_to_hub true: there is no token (--hub_token), and uploading needs one");
}

void RunPushOptions::fields(OptionTable& v) {
  PushOptions::fields(v);
  v("hub_strategy", hub_strategy,
    "what is uploaded when: end, the last model; every_save, the model at every checkpoint; checkpoint, the same and "
    "the "
    "newest checkpoint whole as last-checkpoint/; all_checkpoints, the same and each checkpoint whole")
      .choices({"end", "every_save", "checkpoint", "all_checkpoints"});
}

std::vector<UploadFile> files_with_card(const std::filesystem::path& folder, const std::string& into,
                                        const std::vector<std::string>& leave) {
  std::vector<UploadFile> files = files_to_upload(folder, into, leave);
  if (const auto card = card_of_folder(folder)) {
    const std::string path = into.empty() ? "README.md" : into + "/README.md";
    std::erase_if(files, [&](const UploadFile& file) { return file.path == path; });
    files.push_back({path, {}, *card, static_cast<int64_t>(card->size())});
  }
  return files;
}

void push_with_progress(UploadSpec spec) {
  int64_t total = 0;
  for (const UploadFile& file : spec.files) total += file.size;
  const StopFlag stop;
  spec.abandoned = [&] { return stop.raised(); };
  log_info("uploading ", spec.files.size(), " files (", bytes_text(total), ") to ", repo_page(spec));
  Progress progress("Upload to " + spec.id, total, {.unit = "B"});
  spec.advance = [&](int64_t bytes) { progress.advance(bytes); };
  UploadReport report;
  try {
    report = upload_files(spec);
  } catch (...) {
    if (stop.raised()) throw Interrupted(stop.signal());
    throw;
  }
  progress.finish();
  if (report.files == 0) return log_info(report.page, " has all of these files already");
  log_info("Successfully uploaded ", report.files, " files to ", report.page, " (", bytes_text(report.sent_bytes),
           " of large files were not there)");
}

}  // namespace apus
