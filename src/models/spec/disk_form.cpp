// SPDX-License-Identifier: Apache-2.0
#include "models/spec/disk_form.h"

#include <algorithm>

namespace apus {

std::string DiskForm::disk_name(const std::string& own) const {
  for (const Rename& r : renames)
    if (own.starts_with(r.own)) return r.disk + own.substr(r.own.size());
  return own;
}

std::string DiskForm::own_name(const std::string& disk) const {
  for (const Rename& r : renames)
    if (disk.starts_with(r.disk)) return r.own + disk.substr(r.disk.size());
  return disk;
}

bool DiskForm::is_transposed(const std::string& own) const {
  return std::any_of(transposed.begin(), transposed.end(), [&](const auto& ending) { return own.ends_with(ending); });
}

}  // namespace apus
