// SPDX-License-Identifier: Apache-2.0
// Small helpers of the tests of src/data.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "data/read/reader.h"
#include "tests/folder.h"

namespace apus {

class TemporaryFolder {
 public:
  const std::filesystem::path& path() const { return folder_.path; }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const auto path = folder_.path / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

 private:
  test::Folder folder_;
};

inline std::vector<Row> read_rows(const std::filesystem::path& path) {
  auto reader = open_reader(path);
  std::vector<Row> rows;
  for (Row row; reader->next(row);) rows.push_back(row);
  return rows;
}

inline std::string row_error(RowReader& reader) {
  Row row;
  try {
    reader.next(row);
  } catch (const RowError& error) {
    return error.what();
  }
  return "(no error)";
}

inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace apus
