// SPDX-License-Identifier: Apache-2.0
// The official JSON-Schema-Test-Suite as guides. It is not part of this repository: APUS_JSON_SCHEMA_SUITE names its
// folder tests/draft2020-12. APUS_JSON_SCHEMA_ANSWERS names a file for answers at random, to be validated elsewhere.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "base/error.h"
#include "base/files.h"
#include "guide/guide.h"
#include "tests/guide/guide_tools.h"

namespace apus {
namespace {

using namespace testing_guide;

// Counts over all groups of all files.
struct Counts {
  int schemas = 0, followed = 0, impossible = 0;  // impossible: no answer exists, and that was said
  int valid = 0, valid_taken = 0, invalid = 0, invalid_taken = 0;
};

bool has_valid(const Json& group) {
  return std::any_of(group["tests"].begin(), group["tests"].end(), [](const Json& t) { return t["valid"] == true; });
}

void follow(const Json& group, const std::string& where, Counts& n, std::ostream* answers, bool narrowed) {
  ++n.schemas;
  std::unique_ptr<Constraint> c;
  try {
    c = guide_json_schema(small().words, group["schema"]);
  } catch (const Error& e) {
    const bool none = std::string(e.what()).find("no answer can satisfy") != std::string::npos;
    if (none && !has_valid(group))
      ++n.impossible;
    else
      std::cout << "refused: " << where << ": " << e.what() << "\n";
    return;
  }
  ++n.followed;
  for (const Json& test : group["tests"]) {
    const bool taken = takes(small(), *c, test["data"].dump());
    const bool valid = test["valid"] == true;
    ++(valid ? n.valid : n.invalid);
    if (taken) ++(valid ? n.valid_taken : n.invalid_taken);
    EXPECT_FALSE(taken && !valid) << where << ": " << test["data"] << " is not valid: " << test["description"] << "\n"
                                  << group["schema"];
    if (valid && !taken && narrowed) std::cout << "narrowed: " << where << ": " << test["data"] << "\n";
  }
  for (uint64_t seed = 0; answers && seed < 3; ++seed) {
    Random random(seed, where);
    if (const auto text = ramble(small(), *c, random, 20))
      *answers << Json{{"where", where}, {"schema", group["schema"]}, {"answer", *text}}.dump() << "\n";
  }
}

TEST(GuideSuite, FollowsTheOfficialSchemasAndTakesNothingInvalid) {
  const char* const folder = std::getenv("APUS_JSON_SCHEMA_SUITE");
  if (!folder) GTEST_SKIP() << "APUS_JSON_SCHEMA_SUITE does not name the suite's folder tests/draft2020-12";
  std::ofstream answers;
  if (const char* const file = std::getenv("APUS_JSON_SCHEMA_ANSWERS")) answers.open(file);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  Counts n;
  for (const auto& file : files)
    for (const Json& group : parse_json(read_file(file), file.string()))
      follow(group, file.stem().string() + ": " + group["description"].get<std::string>(), n,
             answers.is_open() ? &answers : nullptr, std::getenv("APUS_JSON_SCHEMA_NARROWED") != nullptr);
  std::cout << n.schemas << " schemas: " << n.followed << " followed, " << n.impossible << " rightly without answer, "
            << n.schemas - n.followed - n.impossible << " refused\n"
            << "valid instances taken: " << n.valid_taken << " of " << n.valid << "; invalid ones: " << n.invalid_taken
            << " of " << n.invalid << "\n";
  EXPECT_EQ(n.invalid_taken, 0);
  EXPECT_GE(n.followed + n.impossible, n.schemas * 85 / 100);
}

}  // namespace
}  // namespace apus
