// SPDX-License-Identifier: Apache-2.0
#include "doctor/libraries.h"

#include <algorithm>
#include <sstream>

namespace apus {

namespace {
void add_list(std::vector<Host::Path>& folders, const std::string& list) {
  std::istringstream in(list);
  for (std::string folder; std::getline(in, folder, ':');)
    if (!folder.empty() && folder[0] == '/') folders.emplace_back(folder);
}

void add_conf(std::vector<Host::Path>& folders, const std::string& text) {
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] == '/') folders.emplace_back(line.substr(0, line.find_first_of(" \t\r#")));
}
}  // namespace

std::vector<Host::Path> library_folders(const Host& host, const std::string& first) {
  std::vector<Host::Path> folders;
  add_list(folders, first);
  add_list(folders, host.variable("LD_LIBRARY_PATH"));
  add_conf(folders, host.text("/etc/ld.so.conf").value_or(""));
  for (const auto& name : host.names_in("/etc/ld.so.conf.d"))
    if (name.ends_with(".conf")) add_conf(folders, host.text("/etc/ld.so.conf.d/" + name).value_or(""));
  for (const char* usual : {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
                            "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"})
    folders.emplace_back(usual);
  return folders;
}

std::vector<Host::Path> find_library(const Host& host, const std::string& name, const std::string& run_path) {
  std::vector<Host::Path> found, seen;
  for (const auto& folder : library_folders(host, run_path)) {
    const Host::Path resolved = host.resolved(folder / name);
    if (resolved.empty() || std::find(seen.begin(), seen.end(), resolved) != seen.end()) continue;
    seen.push_back(resolved);
    found.push_back(folder / name);
  }
  return found;
}

}  // namespace apus
