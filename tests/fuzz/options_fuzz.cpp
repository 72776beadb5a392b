// SPDX-License-Identifier: Apache-2.0
// Command lines of any shape: they parse, or one Fault::Usage says why not. One argument per line of the input.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"

namespace {

struct Everything {
  bool flag = false;
  std::optional<bool> maybe;
  int64_t count = 1;
  double rate = 0.5;
  std::optional<double> share;
  std::string name;
  std::vector<std::string> items;
  std::vector<double> numbers;
  apus::Json object;
  bool lenient = false;
  void fields(apus::OptionTable& v) {
    v("flag", flag, "");
    v("maybe", maybe, "");
    v("count", count, "").at_least(0).alias("number");
    v("rate", rate, "").above(0);
    v("share", share, "").at_most(1);
    v("name", name, "").choices({"one", "two"});
    v("items", items, "");
    v("numbers", numbers, "");
    v("object", object, "");
    v("lenient", lenient, "").forgives_unknown();
    v.no_effect({"idle"}, "why");
    v.refuse({"never"}, "why");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> arguments;
  std::string word;
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == '\n') {
      arguments.push_back(std::move(word));
      word.clear();
    } else {
      word += static_cast<char>(data[i]);
    }
  }
  arguments.push_back(word);
  Everything options;
  apus::OptionTable table = apus::OptionTable::of(options);
  try {
    table.parse(arguments);
  } catch (const apus::Error& error) {
    const auto fault = error.at.fault;
    if (fault != apus::Fault::Usage && fault != apus::Fault::Io) std::abort();
    return 0;
  }
  // What was accepted survives a round trip.
  Everything again;
  apus::OptionTable copy = apus::OptionTable::of(again);
  const apus::Json saved = table.json();
  for (const auto& [name, value] : saved.items()) copy.set(name, value);
  if (apus::json_text(copy.json()) != apus::json_text(saved)) std::abort();
  return 0;
}
