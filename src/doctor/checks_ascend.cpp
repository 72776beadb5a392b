// SPDX-License-Identifier: Apache-2.0
// The Ascend stack from the bottom up: devices, driver, firmware, CANN, its libraries and their symbols, torch_npu.
#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/nearest.h"
#include "doctor/checks.h"
#include "doctor/elf.h"
#include "doctor/inventory.h"
#include "doctor/libraries.h"
#include "doctor/smi.h"
#include "doctor/versions.h"

namespace apus {

namespace {
using State = Check::State;

constexpr const char* kSource =
    "source /usr/local/Ascend/ascend-toolkit/set_env.sh (CANN 8.5 and later: /usr/local/Ascend/cann/set_env.sh)";

Check nodes_check(const Host& host, int nodes, int cards) {
  Check c{"NPU devices", State::Ok, str(nodes, " in /dev"), "", ""};
  std::vector<std::string> missing;
  if (nodes == 0) missing.emplace_back("/dev/davinci0 ...");
  for (const char* node : {"/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"})
    if (!host.exists(node)) missing.emplace_back(node);
  if (missing.empty()) return c;
  c.state = State::Fail;
  c.found = str(cards > 0 ? str(cards, " on the PCI bus, ") : "", nodes, " in /dev; missing: ", join(missing));
  c.wanted = "/dev/davinci<N>, /dev/davinci_manager, /dev/devmm_svm, /dev/hisi_hdc";
  c.hint =
      "in a container: docker run --device /dev/davinci0 --device /dev/davinci_manager --device /dev/devmm_svm "
      "--device /dev/hisi_hdc "
      "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver -v /usr/local/dcmi:/usr/local/dcmi -v "
      "/usr/local/bin/npu-smi:/usr/local/bin/npu-smi "
      "-v /etc/ascend_install.info:/etc/ascend_install.info; on the host: install the driver";
  return c;
}

// What of the host a container must have beside the device nodes.
Check mounts_check(const Host& host) {
  Check c{"container mounts", State::Skipped, "not in a container", "", ""};
  const std::string groups = host.text("/proc/1/cgroup").value_or("");
  const bool inside = host.exists("/.dockerenv") || host.exists("/run/.containerenv") ||
                      !host.variable("KUBERNETES_SERVICE_HOST").empty() || groups.find("docker") != std::string::npos ||
                      groups.find("kubepods") != std::string::npos || groups.find("containerd") != std::string::npos;
  if (!inside) return c;
  std::vector<std::string> missing;
  for (const char* path : {"/usr/local/Ascend/driver", "/usr/local/dcmi", "/etc/ascend_install.info"})
    if (!host.exists(path)) missing.emplace_back(path);
  if (host.find_program("npu-smi").empty()) missing.emplace_back("/usr/local/bin/npu-smi");
  c.state = State::Ok, c.found = "driver, dcmi, npu-smi and ascend_install.info are there";
  if (missing.empty()) return c;
  c.state = host.exists("/usr/local/Ascend/driver") ? State::Warn : State::Fail;
  c.found = "missing in this container: " + join(missing), c.wanted = "the host's, mounted";
  c.hint = "docker run";
  for (const auto& path : missing) c.hint += str(" -v ", path, ":", path);
  return c;
}

Check driver_check(const Host& host, const std::string& driver) {
  Check c{"NPU driver", State::Ok, driver, "", ""};
  if (driver.empty()) {
    c.state = State::Fail, c.found = "no /usr/local/Ascend/driver/version.info", c.wanted = "an installed driver";
    c.hint =
        "on the host: install the Ascend HDK driver; in a container: mount /usr/local/Ascend/driver and "
        "/etc/ascend_install.info";
  } else if (host.find_program("npu-smi").empty()) {
    c.state = State::Warn, c.found += ", no npu-smi", c.wanted = "npu-smi";
    c.hint = "health and links cannot be shown without it: mount /usr/local/bin/npu-smi and /usr/local/dcmi";
  }
  return c;
}

Check firmware_check(const std::string& driver, const std::string& firmware) {
  Check c{"NPU firmware", State::Ok, firmware.empty() ? "version not readable here" : firmware, "", ""};
  const std::string pair = firmware_of_driver(driver);
  if (firmware.empty() || pair.empty()) {
    c.state = State::Skipped;
    if (!firmware.empty())
      c.found += str("; the table of ", version_table_date(), " has no pair for driver ",
                     driver.empty() ? "(unknown)" : driver);
  } else if (firmware != pair) {
    c.state = State::Warn, c.wanted = str(pair, " with driver ", driver);
    c.hint = "driver and firmware come in pairs: install both from one Ascend HDK release";
  }
  return c;
}

Check cann_check(const CannFacts& cann) {
  if (!cann.version.empty()) return {"CANN toolkit", State::Ok, str(cann.version, " (", cann.file, ")"), "", ""};
  return {"CANN toolkit", State::Fail, "not found", "an installed toolkit, its set_env.sh sourced",
          str("install Ascend-cann-toolkit and the kernels package of your chip; where it is installed: ", kSource)};
}

Check environment_check(const Host& host, const CannFacts& cann) {
  Check c{"CANN environment", State::Ok, "", "", ""};
  const std::string home = host.variable("ASCEND_HOME_PATH").empty() ? host.variable("ASCEND_TOOLKIT_HOME")
                                                                     : host.variable("ASCEND_HOME_PATH");
  if (home.empty()) {
    c.state = State::Fail, c.found = "ASCEND_HOME_PATH is not set", c.wanted = "set_env.sh sourced in this shell",
    c.hint = kSource;
    return c;
  }
  c.found = "ASCEND_HOME_PATH=" + home;
  const auto folders = library_folders(host);
  const bool listed =
      std::any_of(folders.begin(), folders.end(), [&](const auto& folder) { return folder.string().find(home) == 0; });
  if (!host.exists(home)) {
    c.state = State::Fail, c.wanted = "a folder that exists", c.hint = kSource;
  } else if (!listed) {
    c.state = State::Fail, c.found += ", but no folder of it is in LD_LIBRARY_PATH",
    c.wanted = home + "/lib64 in LD_LIBRARY_PATH", c.hint = kSource;
  } else if (cann.home != home && !cann.home.empty()) {
    c.state = State::Warn, c.found += str(", the version is from ", cann.home), c.wanted = "one toolkit",
    c.hint = kSource;
  }
  return c;
}

Check pair_check(const CannFacts& cann, const std::string& driver) {
  Check c{"driver for this CANN", State::Skipped, "", "", ""};
  const auto row = driver_for_cann(cann.version);
  const auto version = Version::parse(driver);
  if (!row || !version) {
    c.found = str("nothing known of CANN ", cann.version.empty() ? "(none)" : cann.version, " with driver ",
                  driver.empty() ? "(none)" : driver);
    return c;
  }
  c.found = str("driver ", driver, " with CANN ", cann.version);
  c.wanted = str(row->matched, "; also ", join(row->supported, ".x, "), ".x");
  const bool supported =
      std::find(row->supported.begin(), row->supported.end(), version->family()) != row->supported.end();
  const auto oldest = Version::parse(row->supported.front() + ".RC1");
  c.state = supported ? State::Ok : *version < *oldest ? State::Fail : State::Warn;
  if (c.state == State::Fail)
    c.hint = "the driver is too old for this CANN (507033, E30006 at start): install Ascend HDK " + row->matched;
  if (c.state == State::Warn) c.hint = "a newer driver with an older CANN mostly works; the table does not list it";
  return c;
}

std::string copies(const Host& host, const std::vector<Host::Path>& places) {
  return places.size() < 2
             ? ""
             : str(" (", places.size(), " copies: a second one is ", host.resolved(places[1]).string(), ")");
}

Check library_check(const Host& host, const std::string& name, const std::vector<std::string>& symbols) {
  Check c{name, State::Ok, "", "", ""};
  const auto places = find_library(host, name);
  if (places.empty()) {
    c.state = State::Fail, c.found = "not found in LD_LIBRARY_PATH", c.wanted = "CANN's " + name, c.hint = kSource;
    return c;
  }
  const LibraryFile file = read_library(host.real(places.front()));
  c.found = host.resolved(places.front()).string() + copies(host, places);
  if (!file.elf) {
    c.state = State::Fail, c.found += ": " + file.why_not, c.wanted = "a shared library",
    c.hint = "the installation is damaged: install CANN again";
    return c;
  }
  for (const auto& symbol : symbols) {
    if (file.elf->defines(symbol)) continue;
    c.state = State::Fail, c.wanted = symbol, c.hint = "this is no runtime of CANN: install CANN again";
    return c;
  }
  return c;
}

// libhccl.so with the symbols that cannot be done without: what is absent names the release that has it.
Check hccl_check(const Host& host, const CannFacts& cann, const PythonFacts& python) {
  Check c = library_check(host, "libhccl.so", {});
  if (c.state != State::Ok) return c;
  const auto places = find_library(host, "libhccl.so");
  const LibraryFile file = read_library(host.real(places.front()));
  std::vector<std::string> absent;
  std::string least, purpose;
  for (const auto& row : wanted_symbols()) {
    if (file.elf->defines(row.symbol)) continue;
    absent.push_back(row.symbol);
    if (least.empty()) least = row.cann, purpose = row.purpose;
  }
  if (absent.empty()) return c;
  const auto package = row_of_torch_npu(python.torch_npu, cann.version);
  const std::string wanted = package ? package->cann : least + " or later";
  c.state = State::Fail;
  c.found = str(host.resolved(places.front()).string(), " lacks ", join(absent),
                "; CANN found: ", cann.version.empty() ? "none" : cann.version, copies(host, places));
  c.wanted = str("CANN ", wanted, " (", absent[0], " is in CANN ", least, " and later; needed for ", purpose, ")");
  c.hint = cann.version.empty() || older(cann.version, least)
               ? str("install CANN ", wanted,
                     " and source its set_env.sh; without it training stops with \"Failed to find function ", absent[0],
                     "\"")
               : str("the toolkit is CANN ", cann.version,
                     ", but an older libhccl.so stands before its own in LD_LIBRARY_PATH: source set_env.sh of CANN ",
                     cann.version, " in a fresh shell");
  return c;
}

// The library built without Python, which shows torch_npu::init_npu; pip's does not.
Check self_built_check(const Host& host) {
  for (const auto& path : find_library(host, "libtorch_npu.so")) {
    const LibraryFile file = read_library(host.real(path));
    if (file.elf && file.elf->defines("_ZN9torch_npu8init_npuEa"))
      return {"torch_npu", State::Ok, str("self-built (", host.resolved(path).string(), ")"), "", ""};
  }
  return {"torch_npu", State::Skipped, "", "", ""};
}

Check torch_npu_check(const Host& host, const CannFacts& cann, const PythonFacts& python) {
  Check c = self_built_check(host);
  if (c.state == State::Ok) return c;
  c.state = State::Ok;
  if (python.torch_npu_folder.empty() && python.torch_npu.empty()) {
    const auto fitting = packages_for_cann(cann.version);
    c.state = State::Warn, c.found = "not installed", c.wanted = fitting.empty() ? "" : join(fitting, " or ");
    c.hint = "pip install torch torch_npu of those versions (or build libtorch_npu); without it the NPU cannot be used";
    return c;
  }
  const std::string torch = python.torch.substr(0, python.torch.find('+'));
  c.found =
      str(python.torch_npu.empty() ? "unknown version" : python.torch_npu, " with torch ",
          python.torch.empty() ? "(none)" : python.torch, ", CANN ", cann.version.empty() ? "(none)" : cann.version);
  const auto row = row_of_torch_npu(python.torch_npu, cann.version);
  const auto fail = [&](State state, const std::string& wanted, const std::string& hint) {
    c.state = state, c.wanted = wanted, c.hint = hint;
    return c;
  };
  if (!python.torch_cuda.empty())
    return fail(State::Fail, "a torch without CUDA",
                "\"Two accelerators cannot be used at the same time\": pip install torch==" + torch + "+cpu");
  if (!row) return fail(State::Warn, "", str("the table of ", version_table_date(), " does not list this package"));
  if (torch != row->torch)
    return fail(
        State::Fail, "torch " + row->torch,
        str("torch_npu is bound to one torch: pip install torch==", row->torch, " torch_npu==", python.torch_npu));
  if (cann.version.empty() || compare_versions(cann.version, row->cann) == std::strong_ordering::equal) return c;
  const auto compatible = cann_compatible_with(row->train);
  const bool listed = std::any_of(compatible.begin(), compatible.end(), [&](const auto& each) {
    return compare_versions(each, cann.version) == std::strong_ordering::equal;
  });
  return fail(listed ? State::Warn : State::Fail, "CANN " + row->cann,
              listed ? "declared compatible, with newer features off; the matched pair is tested better"
                     : str("install CANN ", row->cann,
                           ", or the torch_npu of your CANN: ", join(packages_for_cann(cann.version), " or ")));
}

std::vector<Check> device_health(const Host& host) {
  std::vector<Check> all;
  for (const auto& group : inventory(host)) {
    if (group.kind != "npu") continue;
    if (!group.note.empty())
      all.push_back({"npu-smi", State::Fail, group.note, "a list of devices",
                     "the driver does not answer: mount all device nodes; dmesg | tail"});
    for (const Status& s : group.devices) {
      Check c{str("npu:", s.index),
              s.health == "OK"                                 ? State::Ok
              : s.health == "Warning" || s.health == "UNKNOWN" ? State::Warn
                                                               : State::Fail,
              str(s.name, ", health ", s.health, ", ", bytes_text(s.memory_used), " of ", bytes_text(s.memory_total),
                  " used"),
              "", ""};
      if (c.state != State::Ok)
        c.wanted = "OK", c.hint = str("npu-smi info -t health -i ", s.index,
                                      "; leave it out with ASCEND_RT_VISIBLE_DEVICES until it is mended");
      else if (s.memory_total > 0 && s.memory_used > s.memory_total / 2)
        c.state = State::Warn, c.hint = "another process holds most of its memory: the end of `npu-smi info` names it";
      all.push_back(c);
    }
  }
  return all;
}
}  // namespace

std::vector<Check> ascend_checks(const Host& host, const PythonFacts& python) {
  const int nodes = npu_nodes(host), cards = pci_devices(host, "0x19e5", "0x12");
  const CannFacts cann = cann_facts(host);
  const std::string driver = driver_version(host);
  if (nodes == 0 && cards == 0 && cann.version.empty() && driver.empty())
    return {{"Ascend NPU", State::Skipped, "none in this machine: no /dev/davinci*, no CANN, no driver", "", ""}};
  std::vector<Check> all{nodes_check(host, nodes, cards),
                         mounts_check(host),
                         driver_check(host, driver),
                         firmware_check(driver, firmware_version(host)),
                         cann_check(cann),
                         environment_check(host, cann),
                         pair_check(cann, driver),
                         library_check(host, "libascendcl.so", {"aclInit", "aclrtGetDeviceCount"}),
                         hccl_check(host, cann, python),
                         torch_npu_check(host, cann, python),
                         visibility_check(host, "ASCEND_RT_VISIBLE_DEVICES", nodes > 0 ? nodes : -1, true)};
  const auto health = device_health(host);
  all.insert(all.end(), health.begin(), health.end());
  return all;
}

}  // namespace apus
