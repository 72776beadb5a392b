// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

// Where the tests find their data and the program. Only main.cpp is compiled with these paths, so that the objects of
// all other tests are the same in every checkout.
namespace apus::test {

std::filesystem::path source_dir();
std::filesystem::path binary_dir();

}  // namespace apus::test
