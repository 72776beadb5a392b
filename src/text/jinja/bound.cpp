// SPDX-License-Identifier: Apache-2.0
// How the arguments of a call are given to the parameters of a macro or filter.
#include "text/jinja/interpreter.h"

namespace apus::jinja {

Bound::Bound(const Args& args, const char* function, std::initializer_list<const char*> names, size_t required)
    : values_(names.size()), present_(names.size()) {
  if (args.positional.size() > names.size()) {
    trouble(function, "() takes at most ", names.size(), " arguments (", args.positional.size(), " given)");
  }
  for (size_t i = 0; i < args.positional.size(); ++i) {
    values_[i] = args.positional[i];
    present_[i] = 1;
  }
  for (const auto& [name, value] : args.keyword) {
    size_t i = 0;
    while (i < names.size() && name != names.begin()[i]) ++i;
    if (i == names.size()) trouble(function, "() got an unexpected keyword argument '", name, "'");
    if (present_[i]) trouble(function, "() got multiple values for argument '", name, "'");
    values_[i] = value;
    present_[i] = 1;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!present_[i]) trouble(function, "() missing required argument '", names.begin()[i], "'");
  }
}

}  // namespace apus::jinja
