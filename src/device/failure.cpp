// SPDX-License-Identifier: Apache-2.0
#include "device/failure.h"

#include <algorithm>
#include <cstdlib>

#include "base/clock.h"
#include "device/device.h"

namespace apus {

namespace {

Error of_memory(const DeviceKind& kind, const std::string& name, int index, int64_t asked, const std::string& remedy) {
  const Memory memory = kind.memory(index);
  return {Fault::Device, str("out of memory on ", name, ": ", asked > 0 ? str(bytes_text(asked), " more were asked for, ") : "", bytes_text(memory.free), " of ",
                             bytes_text(memory.total), " are free. ", remedy)};
}

Error as_is(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return *ours;
  const std::string what = error.what();
  return {Fault::Bug, what.substr(0, what.find("\nException raised"))};
}

bool ours(const std::exception& error) { return dynamic_cast<const Error*>(&error) != nullptr; }

// The number after `before`, up to its unit: "Tried to allocate 1.50 GiB" -> bytes. 0 when there is none.
int64_t size_after(const std::string& what, const std::string& before) {
  const size_t at = what.find(before);
  if (at == std::string::npos) return 0;
  char* end = nullptr;
  const double number = std::strtod(what.c_str() + at + before.size(), &end);
  const std::string unit(end, std::min<size_t>(4, what.c_str() + what.size() - end));
  const double scale = unit.starts_with(" GiB") ? 1 << 30 : unit.starts_with(" MiB") ? 1 << 20 : unit.starts_with(" KiB") ? 1 << 10 : 1;
  return static_cast<int64_t>(number * scale);
}

}  // namespace

// The allocators of all back ends of libtorch share this text: "<device> out of memory. Tried to allocate 1.50 GiB (...".
// Their exception's type differs, hence the text.
int64_t DeviceKind::out_of_memory(const std::string& what) const {
  return what.find("out of memory. Tried to allocate") == std::string::npos ? -1 : size_after(what, "Tried to allocate ");
}

Error explained(const std::exception& error, c10::Device device, const std::string& remedy) {
  if (ours(error)) return as_is(error);
  const DeviceKind& kind = kind_of(device);
  const int64_t asked = kind.out_of_memory(error.what());
  const int index = device.has_index() ? device.index() : 0;
  return asked < 0 ? as_is(error) : of_memory(kind, device_name(device), index, asked, remedy);
}

Error explained(const std::exception& error, const std::string& remedy) {
  if (ours(error)) return as_is(error);
  for (DeviceKind* kind : device_kinds()) {
    std::string why_not;
    if (!kind->available(&why_not)) continue;
    if (const int64_t asked = kind->out_of_memory(error.what()); asked >= 0) return of_memory(*kind, kind->name(), 0, asked, remedy);
  }
  return as_is(error);
}

}  // namespace apus
