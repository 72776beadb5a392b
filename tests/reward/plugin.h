// SPDX-License-Identifier: Apache-2.0
// Plugins in files of their own, for tests that need Python and are skipped where there is none.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "reward/plugins.h"
#include "tests/folder.h"

namespace apus::test {

class PluginTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no python3 here";
  }
  PluginOptions written(const std::string& text, const std::string& name = "plugin.py") {
    std::ofstream(folder.path / name) << text;
    PluginOptions o;
    o.external_plugins = {(folder.path / name).string()};
    return o;
  }
  Folder folder;
};

}  // namespace apus::test
