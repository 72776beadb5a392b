// SPDX-License-Identifier: Apache-2.0
#include "doctor/versions.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/assets.h"
#include "base/json.h"

namespace apus {

namespace {
enum Stage { kDev, kAlpha, kBeta, kRc, kFinal, kPost };

const Json& version_data() {
  static const Json table = parse_json(asset("knowledge/versions.json"), "versions.json", Fault::Bug);
  return table;
}

struct Piece {
  std::string word;  // lower case; "" for a bare number
  int number = 0;
};

// "8.0.RC2.alpha002" -> 8, 0, rc 2, alpha 2. What follows '+' is a build's own.
std::optional<std::vector<Piece>> pieces(std::string_view text) {
  std::vector<Piece> all;
  text = text.substr(0, text.find('+'));
  if (text.size() > 64) return std::nullopt;
  for (size_t at = 0; at < text.size();) {
    Piece piece;
    for (; at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])); ++at)
      piece.word += static_cast<char>(std::tolower(static_cast<unsigned char>(text[at])));
    if (!piece.word.empty() && at + 1 < text.size() && text[at] == '.' &&
        std::isdigit(static_cast<unsigned char>(text[at + 1])))
      ++at;  // "beta.2"
    const size_t digits = at;
    for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) && at - digits < 9; ++at)
      piece.number = piece.number * 10 + (text[at] - '0');
    if (piece.word.empty() && at == digits) return std::nullopt;
    all.push_back(piece);
    if (at < text.size() && (text[at] == '.' || text[at] == '-' || text[at] == '_'))
      ++at;
    else if (at < text.size() && !std::isalpha(static_cast<unsigned char>(text[at])))
      return std::nullopt;
  }
  return all;
}

std::optional<int> stage_of(const std::string& word) {
  if (word == "dev") return kDev;
  if (word == "alpha" || word == "a") return kAlpha;
  if (word == "beta") return kBeta;
  if (word == "rc" || word == "t" || word == "tr") return kRc;
  if (word == "post") return kPost;
  return std::nullopt;
}
}  // namespace

std::optional<Version> Version::parse(std::string_view text) {
  const auto all = pieces(text);
  if (!all || all->empty() || !(*all)[0].word.empty()) return std::nullopt;
  Version version;
  size_t i = 0;
  for (; i < all->size() && (*all)[i].word.empty(); ++i) version.key_.push_back((*all)[i].number);
  version.key_.resize(std::max<size_t>(5, version.key_.size()));
  bool staged = false;
  for (; i < all->size(); ++i) {
    if (const auto stage = stage_of((*all)[i].word)) {
      version.key_.insert(version.key_.end(), {*stage, (*all)[i].number});
      staged = true;
    } else if ((*all)[i].word.empty()) {
      version.key_.push_back((*all)[i].number + kFinal);
    }  // others ("b030", "git...") number builds
  }
  if (!staged) version.key_.push_back(kFinal);
  // So that what has a further stage (alpha of a release candidate) comes before, and post after.
  version.key_.push_back(kFinal);
  return version;
}

bool Version::begins_with(const Version& other) const {
  return std::equal(key_.begin(), key_.begin() + 2, other.key_.begin());
}
std::string Version::family() const { return str(key_[0], ".", key_[1]); }

std::optional<std::strong_ordering> compare_versions(const std::string& a, const std::string& b) {
  const auto x = Version::parse(a), y = Version::parse(b);
  if (!x || !y) return std::nullopt;
  return *x <=> *y;
}

bool older(const std::string& a, const std::string& b) {
  const auto order = compare_versions(a, b);
  return order && *order < 0;
}

std::optional<PackageRow> row_of_torch_npu(const std::string& package, const std::string& cann) {
  const std::string plain = package.substr(0, package.find('+'));
  std::optional<PackageRow> first;
  for (const Json& row : version_data().at("torch_npu")) {
    const auto& packages = row.at("packages");
    if (!packages.contains(plain)) continue;
    PackageRow found{row.at("cann"), row.at("train"), packages.at(plain)};
    if (compare_versions(found.cann, cann) == std::strong_ordering::equal) return found;
    if (!first) first = std::move(found);
  }
  return first;
}

std::vector<std::string> packages_for_cann(const std::string& cann) {
  std::vector<std::string> all;
  for (const Json& row : version_data().at("torch_npu")) {
    if (compare_versions(row.at("cann"), cann) != std::strong_ordering::equal) continue;
    for (const auto& [package, torch] : row.at("packages").items())
      all.push_back(str("torch_npu ", package, " with torch ", torch.get<std::string>()));
  }
  return all;
}

std::vector<std::string> cann_compatible_with(const std::string& train) {
  for (const Json& row : version_data().at("compatible"))
    for (const Json& each : row.at("trains"))
      if (each == train) return row.at("cann");
  return {};
}

std::optional<VersionRange> python_for_torch(const std::string& torch) {
  const auto version = Version::parse(torch);
  if (!version) return std::nullopt;
  for (const Json& row : version_data().at("python"))
    for (const Json& each : row.at("torch"))
      if (each == version->family()) return VersionRange{row.at("least"), row.at("most")};
  return std::nullopt;
}

// A patch release (8.5.1) takes the row of its first release.
std::optional<DriverRow> driver_for_cann(const std::string& cann) {
  const auto version = Version::parse(cann);
  if (!version) return std::nullopt;
  const Json* best = nullptr;
  for (const Json& row : version_data().at("driver")) {
    const auto here = Version::parse(row.at("cann").get<std::string>());
    if (*here == *version)
      best = &row;
    else if (!best && here->begins_with(*version) && *here < *version)
      best = &row;
  }
  if (!best) return std::nullopt;
  return DriverRow{best->at("cann"), best->at("matched"), best->at("supported")};
}

std::string firmware_of_driver(const std::string& driver) {
  for (const Json& row : version_data().at("firmware"))
    if (compare_versions(row.at("driver"), driver) == std::strong_ordering::equal) return row.at("firmware");
  return "";
}

std::vector<SymbolRow> wanted_symbols() {
  std::vector<SymbolRow> all;
  for (const Json& row : version_data().at("symbols")) all.push_back({row.at("symbol"), row.at("cann"), row.at("for")});
  return all;
}

std::string least_nvidia_driver(const std::string& cuda) {
  const std::string major = cuda.substr(0, cuda.find('.'));
  for (const Json& row : version_data().at("nvidia"))
    if (row.at("cuda") == major) return row.at("driver");
  return "";
}

std::string version_table_date() { return version_data().at("date"); }

}  // namespace apus
