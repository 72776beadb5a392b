// SPDX-License-Identifier: Apache-2.0
// How files hold a model's tensors where that is not as the model has them: under other names, or turned over. Some
// families changed their names over the years, and files of both kinds are about. No tensor library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus {

struct DiskForm {
  struct Rename {
    std::string own, disk;  // beginnings of names
  };
  std::vector<Rename> renames = {};
  // Then, one after the other, what stands anywhere in a name.
  std::vector<Rename> inside = {};
  // At last, of a list that continues another in the file: a number behind `own` is higher by `by` behind `disk`.
  struct Shift {
    std::string own, disk;
    int64_t by;
  };
  std::vector<Shift> shifts = {};
  // Endings of the names of matrices, or of stacks of them, whose last two dimensions the file holds the other way
  // round.
  std::vector<std::string> transposed = {};

  std::string disk_name(const std::string& own) const;
  std::string own_name(const std::string& disk) const;
  bool is_transposed(const std::string& own) const;
};

}  // namespace apus
