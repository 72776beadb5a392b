// SPDX-License-Identifier: Apache-2.0
#include "guide/string_formats.h"

#include <map>

namespace apus::guide {

namespace {

const std::map<std::string, std::string>& formats() {
  // Days as many as the month has; the 29th of February in leap years.
  static const std::string date =
      "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
      "02-(?:0[1-9]|1[0-9]|2[0-8]))|"
      "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";
  static const std::string clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]";
  static const std::string time = clock + "(?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
  static const std::string label = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?";
  static const std::string host = label + "(?:\\." + label + "){0,5}";
  static const std::string octet = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  static const std::string group = "[0-9a-fA-F]{1,4}";
  static const std::string part = "[0-9]{1,6}";
  static const std::string clock_part =
      "T(?:" + part + "H(?:" + part + "M(?:" + part + "S)?)?|" + part + "M(?:" + part + "S)?|" + part + "S)";
  static const std::string days =
      "(?:" + part + "D|" + part + "M(?:" + part + "D)?|" + part + "Y(?:" + part + "M(?:" + part + "D)?)?)";
  static const std::map<std::string, std::string> all = {
      {"date", date},
      {"time", time},
      {"date-time", date + "T" + time},
      {"duration", "P(?:" + days + "(?:" + clock_part + ")?|" + clock_part + "|" + part + "W)"},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"email", "[a-zA-Z0-9_+-]{1,30}(?:\\.[a-zA-Z0-9_+-]{1,30})?@" + label + "(?:\\." + label + "){1,3}"},
      {"hostname", host},
      {"ipv4", octet + "(?:\\." + octet + "){3}"},
      {"ipv6", "(?:" + group + "(?::" + group + "){7}|::(?:" + group + "(?::" + group + "){0,5})?|" + group +
                   "::(?:" + group + "(?::" + group + "){0,4})?)"},
      {"uri", "[a-z][a-z0-9+.-]{0,15}://" + host +
                  "(?::[1-9][0-9]{0,3})?(?:/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9a-fA-F]{2}){0,200})?"},
  };
  return all;
}

}  // namespace

std::optional<std::string> format_pattern(const std::string& format) {
  const auto found = formats().find(format);
  if (found == formats().end()) return std::nullopt;
  return found->second;
}

std::string known_formats() {
  std::string names;
  for (const auto& [name, pattern] : formats()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace apus::guide
