// SPDX-License-Identifier: Apache-2.0
// Regular expressions over names (parameters, modules), as users write them for Python's re.
#pragma once

#include <memory>
#include <string>

namespace apus {

class Pattern {
 public:
  // `where` is the flag or file that the expression came from, for messages.
  Pattern(const std::string& expression, const std::string& where);
  bool matches(const std::string& name) const;  // the whole name
  bool begins(const std::string& name) const;   // at its start
  bool found_in(const std::string& name) const;

 private:
  bool run(const std::string& name, unsigned options) const;
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace apus
