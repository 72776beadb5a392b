// SPDX-License-Identifier: Apache-2.0
#include "models/spec/disk_form.h"

#include <algorithm>
#include <charconv>

namespace apus {

namespace {
std::string with(const std::string& name, const std::string& part, const std::string& other) {
  const size_t at = name.find(part);
  return at == std::string::npos ? name : name.substr(0, at) + other + name.substr(at + part.size());
}

// The same with a number behind `part` that is at least `least`.
std::string shifted(const std::string& name, const std::string& part, const std::string& other, int64_t by,
                    int64_t least) {
  const size_t at = name.find(part);
  if (at == std::string::npos) return name;
  const char* const digits = name.data() + at + part.size();
  int64_t number = -1;
  const auto [end, error] = std::from_chars(digits, name.data() + name.size(), number);
  if (error != std::errc() || number < least) return name;
  return name.substr(0, at) + other + std::to_string(number + by) + std::string(end);
}
}  // namespace

std::string DiskForm::disk_name(const std::string& own) const {
  std::string name = own;
  for (const Rename& r : renames)
    if (own.starts_with(r.own)) {
      name = r.disk + own.substr(r.own.size());
      break;
    }
  for (const Rename& r : inside) name = with(name, r.own, r.disk);
  for (const Shift& s : shifts) name = shifted(name, s.own, s.disk, s.by, 0);
  return name;
}

std::string DiskForm::own_name(const std::string& disk) const {
  std::string name = disk;
  for (auto s = shifts.rbegin(); s != shifts.rend(); ++s) name = shifted(name, s->disk, s->own, -s->by, s->by);
  for (auto r = inside.rbegin(); r != inside.rend(); ++r) name = with(name, r->disk, r->own);
  for (const Rename& r : renames)
    if (name.starts_with(r.disk)) return r.own + name.substr(r.disk.size());
  return name;
}

bool DiskForm::is_transposed(const std::string& own) const {
  return std::any_of(transposed.begin(), transposed.end(), [&](const auto& ending) { return own.ends_with(ending); });
}

}  // namespace apus
