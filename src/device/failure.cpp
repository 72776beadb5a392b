// SPDX-License-Identifier: Apache-2.0
#include "device/failure.h"

#include <algorithm>
#include <cstdlib>
#include <regex>

#include "base/clock.h"
#include "device/device.h"

namespace apus {

namespace {

// The sizes that match `pattern`, whose groups are number and unit: "1.50 GiB" -> bytes. -1 when nothing does.
int64_t size_in(const std::string& what, const std::string& pattern) {
  std::smatch match;
  if (!std::regex_search(what, match, std::regex(pattern))) return -1;
  const std::string unit = match[2];
  const double scale = unit == "GiB" ? 1 << 30 : unit == "MiB" ? 1 << 20 : unit == "KiB" ? 1 << 10 : 1;
  return static_cast<int64_t>(std::strtod(match[1].str().c_str(), nullptr) * scale);
}

constexpr const char* kSize = "([0-9.]+) (GiB|MiB|KiB|bytes)";

// The device that the allocator names, "... (XPU 3; 64.00 GiB total ..." or "... XPU 3 has a total ..."; -1: none.
int device_in(const std::string& what) {
  std::smatch match;
  return std::regex_search(what, match, std::regex("[A-Z]PU ([0-9]{1,3})(;| has)")) ? std::stoi(match[1].str()) : -1;
}

// What was free is taken from the message: by now the failed computation's own tensors are gone.
Error of_memory(const DeviceKind& kind, const std::string& name, int index, int64_t asked, const std::string& what,
                const std::string& remedy) {
  const Memory memory = kind.memory(index);
  const int64_t told = size_in(what, str(kSize, "(?: is)? free"));
  return {Fault::Device,
          str("out of memory on ", name, ": ", asked > 0 ? str(bytes_text(asked), " more were asked for, ") : "",
              bytes_text(told >= 0 ? told : memory.free), " of ", bytes_text(memory.total), " were free. ", remedy)};
}

Error as_is(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return *ours;
  const std::string what = error.what();
  return {Fault::Bug, what.substr(0, what.find("\nException raised"))};
}

bool ours(const std::exception& error) { return dynamic_cast<const Error*>(&error) != nullptr; }

}  // namespace

// The allocators of all back ends of libtorch share this text: "<device> out of memory. Tried to allocate 1.50 GiB
// (...". Their exception's type differs, hence the text.
int64_t DeviceKind::out_of_memory(const std::string& what) const {
  if (what.find("out of memory. Tried to allocate") == std::string::npos) return -1;
  return std::max<int64_t>(0, size_in(what, str("Tried to allocate ", kSize)));
}

Error explained(const std::exception& error, c10::Device device, const std::string& remedy) {
  if (ours(error)) return as_is(error);
  const DeviceKind& kind = kind_of(device);
  const int64_t asked = kind.out_of_memory(error.what());
  if (asked < 0) return as_is(error);
  if (const int named = device_in(error.what());
      named >= 0 && named < kind.count() && !device.is_cpu())  // one of several
    device.set_index(static_cast<c10::DeviceIndex>(named));
  return of_memory(kind, device_name(device), device.has_index() ? device.index() : 0, asked, error.what(), remedy);
}

Error explained(const std::exception& error, const std::string& remedy) {
  if (ours(error)) return as_is(error);
  for (DeviceKind* kind : device_kinds()) {
    std::string why_not;
    if (kind->available(&why_not) && kind->out_of_memory(error.what()) >= 0)
      return explained(error, c10::Device(kind->type()), remedy);
  }
  return as_is(error);
}

}  // namespace apus
