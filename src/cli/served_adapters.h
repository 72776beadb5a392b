// SPDX-License-Identifier: Apache-2.0
// The names under which clients ask for the adapters of a server.
#pragma once

#include <string>
#include <vector>

namespace apus {

struct ServedAdapter {
  std::string name, folder;
  bool named = true;  // by the user: NAME=DIR
};

// --adapters, each NAME=DIR or DIR, which has no name yet.
std::vector<ServedAdapter> served_adapters(const std::vector<std::string>& given);
// Names for those without: one is called as the folder of its runs is, "skill" of
// out/skill/v0-20261122-180347/checkpoint-39; where the model or another adapter is called so already, as its run; else
// "lora", "lora-2", ... Two names that are the same are an error.
void name_adapters(std::vector<ServedAdapter>& adapters, const std::string& model_name);

}  // namespace apus
