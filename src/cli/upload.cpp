// SPDX-License-Identifier: Apache-2.0
// `apus upload`: a folder put onto a hub as one commit.
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/push_options.h"
#include "cli/rehearsal.h"

namespace apus {
namespace {

struct UploadOptions {
  HubFlags hub;
  RunOptions common;
  std::string folder, hub_model_id, path_in_repo, repo_type = "model", commit_message;
  std::vector<std::string> exclude;
  bool hub_private_repo = false;

  void fields(OptionTable& v) {
    v.group("Upload");
    v("folder", folder, "what is uploaded: a model, an adapter, a checkpoint of a run, or rows").required().common();
    v("hub_model_id", hub_model_id, "the repository: owner/name; made if it is not there")
        .required()
        .common()
        .alias("repo_id");
    v("repo_type", repo_type, "what the repository holds").choices({"model", "dataset"}).common();
    v("path_in_repo", path_in_repo, "a folder of the repository to put the files in").shown_default("its root");
    v("exclude", exclude, "patterns of files that stay here, such as optimizer*.safetensors").common();
    v("hub_private_repo", hub_private_repo, "a repository that is made for the upload is private").common();
    v("commit_message", commit_message, "what the commit is called").shown_default("upload with apus");
    hub.fields(v);
    v.at("model_revision").help = "branch that the commit is made on; it must be there";
    common.fields(v);
  }
  void resolve(OptionTable&) { hub.resolve(); }
  void check() const {
    require(std::filesystem::is_directory(folder), Fault::Usage, "--folder ", folder, " is not a folder here");
    require(is_repo_id(hub_model_id), Fault::Usage, "--hub_model_id ", hub_model_id,
            ": owner/name is needed, as it stands in the address of the repository's page");
  }
  UploadSpec spec() const {
    const PushOptions push{.push_to_hub = true,
                           .hub_private_repo = hub_private_repo,
                           .hub_model_id = hub_model_id,
                           .commit_message = commit_message.empty() ? "upload with apus" : commit_message};
    UploadSpec spec = push.upload(hub);
    spec.hub.revision = hub.model_revision.value_or("");
    spec.repo = repo_type == "model" ? RepoKind::Model : RepoKind::Dataset;
    spec.files = spec.repo == RepoKind::Model ? files_with_card(folder, path_in_repo, exclude)
                                              : files_to_upload(folder, path_in_repo, exclude);
    return spec;
  }
  void rehearse(Rehearsal& r) const {
    const UploadSpec asked = spec();
    int64_t bytes = 0;
    for (const UploadFile& file : asked.files) bytes += file.size;
    r.right("upload", str(asked.files.size(), " files (", bytes_text(bytes), ") to ", repo_page(asked)));
    if (asked.hub.token.empty()) r.doubt("there is no token (--hub_token), and uploading needs one");
  }
};

int run(const UploadOptions& o) {
  const UploadSpec spec = o.spec();
  prepare_upload(spec);
  push_with_progress(spec);
  return 0;
}

const RegisterCommand<UploadOptions> upload_command(
    {.name = "upload",
     .group = "Model",
     .summary = "put a folder onto ModelScope or HuggingFace, with a card that says how it was made",
     .examples = {"upload --folder out/v0-.../checkpoint-500 --hub_model_id me/my-model",
                  "upload --folder DIR-gguf --hub_model_id me/my-model-gguf --use_hf true",
                  "upload --folder rows --hub_model_id me/my-rows --repo_type dataset --use_hf true"}},
    run);

}  // namespace
}  // namespace apus
