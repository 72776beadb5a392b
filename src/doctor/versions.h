// SPDX-License-Identifier: Apache-2.0
// Version numbers as the vendors write them, and the table of what belongs together (assets/knowledge/versions.json).
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace apus {

// "8.3.RC1", "8.0.RC2.alpha002", "25.3.rc1", "24.1.rc1.b030", "2.7.1.post2", "2.7.1+cpu", "9.0.0-beta.2", "570.86.15".
// alpha < beta < rc < final < post. Missing numbers count as 0.
class Version {
 public:
  static std::optional<Version> parse(std::string_view text);
  std::strong_ordering operator<=>(const Version& other) const = default;
  bool operator==(const Version& other) const = default;
  bool begins_with(const Version& other) const;  // the same first two numbers
  std::string family() const;                    // "25.3"

 private:
  // The numbers, then the stage and its number, and so on: versions are ordered as these lists are.
  std::vector<int> key_;
};
std::optional<std::strong_ordering> compare_versions(const std::string& a, const std::string& b);
bool older(const std::string& a, const std::string& b);  // false when either is no version

// What a version table says of a torch_npu package.
struct PackageRow {
  std::string cann, train, torch;
};
// A package is released with several versions of CANN: the row of this one if there is one, else the first.
std::optional<PackageRow> row_of_torch_npu(const std::string& package, const std::string& cann = "");
std::vector<std::string> packages_for_cann(const std::string& cann);  // "torch_npu 2.7.1 with torch 2.7.1", ...
std::vector<std::string> cann_compatible_with(const std::string& train);

struct VersionRange {
  std::string least, most;
};
std::optional<VersionRange> python_for_torch(const std::string& torch);

struct DriverRow {
  std::string cann, matched;
  std::vector<std::string> supported;  // families
};
std::optional<DriverRow> driver_for_cann(const std::string& cann);
std::string firmware_of_driver(const std::string& driver);  // "" when the table has no pair

struct SymbolRow {
  std::string symbol, cann, purpose;
};
std::vector<SymbolRow> wanted_symbols();
std::string least_nvidia_driver(const std::string& cuda);  // "" when not known
std::string version_table_date();

}  // namespace apus
