// SPDX-License-Identifier: Apache-2.0
// What `apus doctor` looks at, without the tensor library: each check reads a Host and says what was found, what is
// wanted and what to do.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "device/topology.h"
#include "doctor/host.h"
#include "doctor/paint.h"

namespace apus {

struct Section {
  std::string title;
  std::vector<Check> checks;
};

// The Python on PATH and what it would import, asked without importing it.
struct PythonFacts {
  std::string python, version;  // program, "3.11.2"; empty: no Python
  // Version, folder of the package, CUDA it was built with ("" for none).
  std::string torch, torch_folder, torch_cuda;
  std::string torch_npu, torch_npu_folder;
};
PythonFacts python_facts(const Host& host);

struct CannFacts {
  std::string home;     // of the toolkit; empty: none
  std::string version;  // "8.3.RC1"
  std::string file;     // where the version was read
};
CannFacts cann_facts(const Host& host);
std::string driver_version(const Host& host);    // of the NPU; "" when there is none
std::string firmware_version(const Host& host);  // of the NPU; "" when it cannot be read

std::vector<Check> ascend_checks(const Host& host, const PythonFacts& python);
std::vector<Check> nvidia_checks(const Host& host, const PythonFacts& python);
std::vector<Check> torch_checks(const Host& host, const PythonFacts& python);

struct HostPlaces {
  std::string output_dir = "output";
};
std::vector<Check> host_checks(const Host& host, const HostPlaces& places);

// A list as in ASCEND_RT_VISIBLE_DEVICES; `present` devices, -1 when unknown.
Check visibility_check(const Host& host, const std::string& variable, int present, bool ascending);

std::vector<Section> all_checks(const Host& host, const HostPlaces& places);
bool sound(const std::vector<Section>& sections);  // nothing failed
std::string checks_text(const std::vector<Section>& sections, const Paint& paint, int width);
Json to_json(const std::vector<Section>& sections);
std::vector<Check> checks_from_json(const Json& json);  // what to_json() made, without sections

}  // namespace apus
