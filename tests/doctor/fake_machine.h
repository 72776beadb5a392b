// SPDX-License-Identifier: Apache-2.0
// Machines made of files: a folder with what the doctor looks at, and libraries that consist of a table of symbols.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "doctor/host.h"

namespace apus::test {

// A shared library of 64 bits without code: header, dynamic symbols, their names,
// the dynamic section, the section table.
inline std::string shared_library(const std::vector<std::string>& symbols, const std::vector<std::string>& needed = {},
                                  const std::string& runpath = "", const std::string& soname = "") {
  std::string strings(1, '\0'), table(24, '\0'), dynamic;
  const auto text = [&](const std::string& s) {
    const uint64_t at = strings.size();
    strings += s + '\0';
    return at;
  };
  const auto put = [](std::string& to, auto value) { to.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto tag = [&](uint64_t kind, uint64_t value) { put(dynamic, kind), put(dynamic, value); };
  for (const auto& symbol : symbols) {
    put(table, static_cast<uint32_t>(text(symbol)));
    table += "\x12";  // global function
    table += '\0';
    put(table, uint16_t{1}), put(table, uint64_t{64}), put(table, uint64_t{0});
  }
  for (const auto& name : needed) tag(1, text(name));
  if (!runpath.empty()) tag(29, text(runpath));
  if (!soname.empty()) tag(14, text(soname));
  tag(0, 0);
  std::string file(
      "\x7f"
      "ELF\x02\x01\x01",
      7);
  file.resize(16, '\0');
  const uint64_t symbols_at = 64, strings_at = symbols_at + table.size(), dynamic_at = strings_at + strings.size(),
                 sections_at = dynamic_at + dynamic.size();
  put(file, uint16_t{3}), put(file, uint16_t{62}), put(file, uint32_t{1}), put(file, uint64_t{0}),
      put(file, uint64_t{0}), put(file, sections_at);
  put(file, uint32_t{0}), put(file, uint16_t{64}), put(file, uint16_t{0}), put(file, uint16_t{0}),
      put(file, uint16_t{64}), put(file, uint16_t{4}), put(file, uint16_t{0});
  file += table + strings + dynamic + std::string(64, '\0');
  const auto section = [&](uint32_t type, uint64_t at, uint64_t size, uint32_t link) {
    put(file, uint32_t{0}), put(file, type), put(file, uint64_t{0}), put(file, uint64_t{0}), put(file, at),
        put(file, size), put(file, link);
    put(file, uint32_t{0}), put(file, uint64_t{8}), put(file, uint64_t{0});
  };
  section(11, symbols_at, table.size(), 2);
  section(3, strings_at, strings.size(), 0);
  section(6, dynamic_at, dynamic.size(), 2);
  return file;
}

inline const std::vector<std::string> kHcclSymbols{
    "HcclGetRootInfo",       "HcclCommInitRootInfo",       "HcclAllReduce",
    "HcclGetCommAsyncError", "HcclCommInitRootInfoConfig", "HcclCreateSubCommConfig",
    "HcclAllGatherV"};

inline std::vector<std::string> without(std::vector<std::string> symbols, const std::vector<std::string>& absent) {
  std::erase_if(symbols, [&](const auto& s) { return std::find(absent.begin(), absent.end(), s) != absent.end(); });
  return symbols;
}

class FakeMachine {
 public:
  FakeMachine() {
    std::string name = (std::filesystem::temp_directory_path() / "apus-machine-XXXXXX").string();
    root = ::mkdtemp(name.data());
    host.root = root;
    host.env = {{"PATH", "/usr/bin"}, {"HOME", "/root"}};
    host.memory_total = int64_t{256} << 30, host.memory_free = int64_t{200} << 30;
    host.usable_cores = 96, host.open_files = 1048576, host.now = 1790000000;
    host.space_of = [](const Host::Path&) { return Space{int64_t{1} << 42, int64_t{1} << 41}; };
    host.port_is_free = [](int) { return true; };
    host.run_file = [this](const Host::Path& program, const std::vector<std::string>& arguments, double) {
      return answer(program.filename().string(), arguments);
    };
    file("/dev/shm/x", "");
    file("/proc/self/status", "Name:\tapus\nCpus_allowed_list:\t0-95\nMems_allowed_list:\t0-1\n");
    file("/sys/devices/system/cpu/online", "0-191\n");
    file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  }
  ~FakeMachine() { std::filesystem::remove_all(root); }
  FakeMachine(const FakeMachine&) = delete;
  FakeMachine& operator=(const FakeMachine&) = delete;

  void file(const std::string& path, const std::string& text) {
    const auto at = root / std::filesystem::path(path).relative_path();
    std::filesystem::create_directories(at.parent_path());
    std::ofstream(at, std::ios::binary) << text;
  }
  void link(const std::string& path, const std::string& target) {
    const auto at = root / std::filesystem::path(path).relative_path();
    std::filesystem::create_directories(at.parent_path());
    std::filesystem::create_symlink(target, at);
  }
  void remove(const std::string& path) {
    std::filesystem::remove_all(root / std::filesystem::path(path).relative_path());
  }

  // Eight cards, driver, CANN with its environment, pip's torch and torch_npu: everything in order.
  void make_ascend(const std::string& cann = "8.3.RC1", const std::string& driver = "25.3.rc1",
                   const std::vector<std::string>& hccl = kHcclSymbols) {
    for (int i = 0; i < 8; ++i) file("/dev/davinci" + std::to_string(i), "");
    for (const char* node :
         {"/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc", "/usr/local/bin/npu-smi", "/usr/bin/python3"})
      file(node, "");
    file("/usr/local/Ascend/driver/version.info", "Version=" + driver + "\nascendhal_version=7.35.19\n");
    const std::string home = "/usr/local/Ascend/ascend-toolkit/" + cann;
    link("/usr/local/Ascend/ascend-toolkit/latest", cann);
    file(home + "/aarch64-linux/ascend_toolkit_install.info",
         "package_name=Ascend-cann-toolkit\nversion=" + cann + "\ninnerversion=V100R001C23\narch=aarch64\n");
    file(home + "/lib64/libascendcl.so", shared_library({"aclInit", "aclrtGetDeviceCount", "aclrtSetDevice"}));
    file(home + "/lib64/libhccl.so", shared_library(hccl));
    host.env["ASCEND_HOME_PATH"] = "/usr/local/Ascend/ascend-toolkit/latest";
    host.env["LD_LIBRARY_PATH"] = "/usr/local/Ascend/ascend-toolkit/latest/lib64";
    python =
        R"({"version": "3.10.12", "torch": ["2.7.1+cpu", "/opt/site/torch"], "torch_npu": ["2.7.1", "/opt/site/torch_npu"]})";
    file("/opt/site/torch/version.py", "__version__ = '2.7.1+cpu'\ncuda: Optional[str] = None\n");
  }

  std::filesystem::path root;
  Host host;
  std::string python, npu_smi;  // what the programs answer

 private:
  Ran answer(const std::string& program, const std::vector<std::string>&) const {
    if (program == "python3" && !python.empty()) return {0, python};
    if (program == "npu-smi") return {0, npu_smi};
    return {127, ""};
  }
};

}  // namespace apus::test
