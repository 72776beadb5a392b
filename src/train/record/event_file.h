// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files: scalars over steps, appended as length-prefixed records with masked CRC-32C sums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apus {

uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  // Creates `dir`/events.out.tfevents.<seconds>.<host>.<process>.0
  explicit EventFile(const std::filesystem::path& dir);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);  // on disk when it returns
  const std::filesystem::path& path() const { return path_; }

 private:
  void record(std::string_view event);
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace apus
