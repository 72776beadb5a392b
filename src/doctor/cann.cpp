// SPDX-License-Identifier: Apache-2.0
// Where CANN and the NPU driver are installed, and their versions, from their info files (npu-smi's banner names the
// driver, never CANN).
#include "doctor/checks.h"

namespace apus {

namespace {
// "key=value" lines; the key in any case.
std::string value_of(const std::string& text, const std::string& key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = line.find('=');
    if (equals != key.size()) continue;
    bool same = true;
    for (size_t i = 0; i < equals; ++i)
      same =
          same && std::tolower(static_cast<unsigned char>(line[i])) == std::tolower(static_cast<unsigned char>(key[i]));
    if (!same) continue;
    std::string value = line.substr(equals + 1);
    while (!value.empty() && (value.back() == '\r' || value.back() == ' ' || value.back() == '"')) value.pop_back();
    while (!value.empty() && (value.front() == ' ' || value.front() == '"')) value.erase(value.begin());
    return value;
  }
  return "";
}

std::string version_in(const Host& host, const Host::Path& file) {
  const auto text = host.text(file);
  return text ? value_of(*text, "version") : "";
}
}  // namespace

CannFacts cann_facts(const Host& host) {
  std::vector<std::string> homes;
  for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"})
    if (const std::string home = host.variable(name); !home.empty()) homes.push_back(home);
  for (const char* usual : {"/usr/local/Ascend/ascend-toolkit/latest", "/usr/local/Ascend/cann"})
    homes.emplace_back(usual);
  if (const std::string home = host.variable("HOME"); !home.empty())
    homes.push_back(home + "/Ascend/ascend-toolkit/latest");
  for (const auto& home : homes) {
    for (const char* file :
         {"x86_64-linux/ascend_toolkit_install.info", "aarch64-linux/ascend_toolkit_install.info",
          "ascend_toolkit_install.info", "compiler/version.info", "runtime/version.info", "toolkit/version.info"}) {
      const Host::Path path = Host::Path(home) / file;
      if (const std::string version = version_in(host, path); !version.empty()) return {home, version, path.string()};
    }
  }
  return {};
}

std::string driver_version(const Host& host) {
  std::vector<std::string> roots{"/usr/local/Ascend"};
  if (const auto info = host.text("/etc/ascend_install.info"))
    if (const std::string root = value_of(*info, "Driver_Install_Path_Param"); !root.empty())
      roots.insert(roots.begin(), root);
  for (const auto& root : roots)
    if (const std::string version = version_in(host, Host::Path(root) / "driver/version.info"); !version.empty())
      return version;
  return "";
}

std::string firmware_version(const Host& host) { return version_in(host, "/usr/local/Ascend/firmware/version.info"); }

}  // namespace apus
