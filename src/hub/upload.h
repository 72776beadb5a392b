// SPDX-License-Identifier: Apache-2.0
// A folder put onto a hub as one commit. What the hub holds already is not sent again, so an upload that broke off goes
// on where its last whole file ended.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hub/hub.h"

namespace apus {

struct UploadFile {
  std::string path;                 // in the repository
  std::filesystem::path file;       // here...
  std::optional<std::string> text;  // ...or, instead, what it holds
  int64_t size = 0;
};

struct UploadSpec {
  std::string id;  // owner/name
  RepoKind repo = RepoKind::Model;
  HubOptions hub;
  bool is_private = false;  // where the repository is made by the upload
  std::string message = "update files";
  std::vector<UploadFile> files;
  std::function<void(int64_t bytes)> advance = {};  // so many more have gone
  std::function<bool()> abandoned = {};             // asked now and then; true: break off
};

struct UploadReport {
  int64_t files = 0;       // in the commit; 0: the hub had all of them, and no commit was made
  int64_t sent_bytes = 0;  // beside the commit: of large files that were not there
  std::string page;        // where people see it
};

// Files of a folder that an upload takes, by path: none that is hidden, half-written or left out by a pattern.
// `into`: a folder of the repository; empty: its root.
std::vector<UploadFile> files_to_upload(const std::filesystem::path& folder, const std::string& into = "",
                                        const std::vector<std::string>& leave = {});

// Makes the repository where it is not there yet, and so proves token and network. Fault::Io says what is missing.
void prepare_upload(const UploadSpec& spec);
UploadReport upload_files(const UploadSpec& spec);
std::string repo_page(const UploadSpec& spec);

}  // namespace apus
