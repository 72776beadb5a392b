// SPDX-License-Identifier: Apache-2.0
// The list of device kinds, and the way from a name a user wrote ("auto", "npu:1") to a device that is open.
#include "device/device.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/nearest.h"
#include "base/registry.h"

namespace apus {

namespace {
using Kinds = Registry<std::unique_ptr<DeviceKind>>;
struct WhyMissing {
  std::string text;
};
using MissingKinds = Registry<WhyMissing>;

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (const DeviceKind* kind : device_kinds()) names.push_back(kind->name());
  return names;
}

bool usable(DeviceKind& kind) {
  std::string why_not;
  return kind.available(&why_not);
}

// "npu (8), cpu (1)", and after it why the others cannot be used.
std::string what_exists() {
  std::vector<std::string> here, rest;
  for (DeviceKind* kind : device_kinds()) {
    std::string why_not;
    if (kind->available(&why_not))
      here.push_back(str(kind->name(), " (", kind->count(), ")"));
    else
      rest.push_back(str(kind->name(), ": ", why_not));
  }
  return str("usable here: ", here.empty() ? "none" : join(here),
             rest.empty() ? "" : str("; not usable: ", join(rest, "; ")));
}

DeviceChoice open_kind(DeviceKind& kind, int index) {
  kind.open(index);
  DeviceChoice choice{&kind, c10::Device(kind.type())};
  if (kind.type() != c10::kCPU) choice.device = c10::Device(kind.type(), static_cast<c10::DeviceIndex>(index));
  return choice;
}

int parse_index(const std::string& wanted, const std::string& digits) {
  int index = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  require(error == std::errc() && end == digits.data() + digits.size() && index >= 0, Fault::Usage, "'", wanted,
          "' is no device: after the colon stands a number, as in npu:1; ", what_exists());
  return index;
}
}  // namespace

RegisterDevice::RegisterDevice(std::unique_ptr<DeviceKind> kind) {
  const std::string name = kind->name();
  Kinds::of().add(name, std::move(kind));
}

MissingDevice::MissingDevice(const std::string& name, std::string why) {
  MissingKinds::of().add(name, {std::move(why)});
}

std::map<std::string, std::string> missing_kinds() {
  std::map<std::string, std::string> all;
  for (const auto& [name, why] : MissingKinds::of().all()) all[name] = why.text;
  return all;
}

std::vector<DeviceKind*> device_kinds() {
  std::vector<DeviceKind*> kinds;
  for (const auto& [name, kind] : Kinds::of().all()) kinds.push_back(kind.get());
  std::stable_sort(kinds.begin(), kinds.end(),
                   [](const auto* a, const auto* b) { return a->priority() > b->priority(); });
  return kinds;
}

DeviceKind& kind_of(c10::Device device) {
  DeviceKind* found = nullptr;
  // Two kinds may share c10's one private type: the usable one owns the tensors.
  for (DeviceKind* kind : device_kinds()) {
    if (kind->type() != device.type()) continue;
    if (usable(*kind)) return *kind;
    if (!found) found = kind;
  }
  require(found, Fault::Bug, "no device kind is registered for tensors on ", device.str());
  return *found;
}

DeviceKind& choose_kind(const std::string& wanted) {
  if (wanted.empty() || wanted == "auto") {
    for (DeviceKind* kind : device_kinds())
      if (usable(*kind)) return *kind;
    fail(Fault::Device, "no device can be used; ", what_exists());
  }
  const std::string name = wanted.substr(0, wanted.find(':'));
  const auto* entry = Kinds::of().find(name);
  if (!entry) {
    const WhyMissing* const missing = MissingKinds::of().find(name);
    require(!missing, Fault::Device, "--device ", wanted, ": ", missing ? missing->text : "", "; ", what_exists());
    const auto near = nearest(name, kind_names(), 1);
    fail(Fault::Usage, "unknown device '", wanted, "'", near.empty() ? "" : str(" (", near[0], "?)"),
         "; known kinds: ", join(kind_names()), ", or auto; ", what_exists());
  }
  std::string why_not;
  require((*entry)->available(&why_not), Fault::Device, "device '", wanted, "' cannot be used: ", why_not, "; ",
          what_exists());
  return **entry;
}

DeviceChoice open_device(const std::string& wanted) {
  DeviceKind& kind = choose_kind(wanted);
  const size_t colon = wanted.find(':');
  const int index = colon == std::string::npos ? 0 : parse_index(wanted, wanted.substr(colon + 1));
  require(index < kind.count(), Fault::Usage, "device '", wanted, "' does not exist: ", kind.name(),
          " counts from 0 and has ", kind.count(),
          kind.visibility_env().empty() ? "" : str(" visible (", kind.visibility_env(), " selects them)"));
  return open_kind(kind, index);
}

std::string device_name(c10::Device device) {
  const std::string name = kind_of(device).name();
  return device.has_index() && !device.is_cpu() ? str(name, ":", static_cast<int>(device.index())) : name;
}

std::string DeviceChoice::name() const {
  return device.has_index() && !device.is_cpu() ? str(kind->name(), ":", static_cast<int>(device.index()))
                                                : kind->name();
}

}  // namespace apus
