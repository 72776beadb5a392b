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
  static const std::string ipv4 = octet + "(?:\\." + octet + "){3}";
  static const std::string ipv6 = "(?:" + group + "(?::" + group + "){7}|::(?:" + group + "(?::" + group + "){0,5})?|" +
                                  group + "::(?:" + group + "(?::" + group + "){0,4})?)";
  static const std::string email =
      "[a-zA-Z0-9_+-]{1,30}(?:\\.[a-zA-Z0-9_+-]{1,30})?@" + label + "(?:\\." + label + "){1,3}";
  static const std::string path = "/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9a-fA-F]{2}){0,200}";
  static const std::string uri = "[a-z][a-z0-9+.-]{0,15}://" + host + "(?::[1-9][0-9]{0,3})?(?:" + path + ")?";
  static const std::string pointer = "(?:/(?:[a-zA-Z0-9_.-]|~[01]){0,50}){0,20}";
  static const std::string hex = "[0-9a-fA-F]";
  const auto uuid = [](const std::string& version) {
    return hex + "{8}-" + hex + "{4}-" + version + "-" + hex + "{4}-" + hex + "{12}";
  };
  const auto versioned = [&](char digit) { return uuid(digit + hex + "{3}"); };
  // Empty: any text.
  static const std::map<std::string, std::string> all = {
      {"date", date},
      {"time", time},
      {"date-time", date + "T" + time},
      {"duration", "P(?:" + days + "(?:" + clock_part + ")?|" + clock_part + "|" + part + "W)"},
      {"uuid", uuid(hex + "{4}")},
      {"guid", uuid(hex + "{4}")},
      {"uuid1", versioned('1')},
      {"uuid3", versioned('3')},
      {"uuid4", hex + "{8}-" + hex + "{4}-4" + hex + "{3}-[89abAB]" + hex + "{3}-" + hex + "{12}"},
      {"uuid5", versioned('5')},
      {"uuid6", versioned('6')},
      {"uuid7", versioned('7')},
      {"uuid8", versioned('8')},
      {"email", email},
      {"idn-email", email},
      {"name-email", "[A-Za-z ]{1,40} <" + email + ">"},
      {"hostname", host},
      {"idn-hostname", host},
      {"ipv4", ipv4},
      {"ipv6", ipv6},
      {"ipvanyaddress", "(?:" + ipv4 + "|" + ipv6 + ")"},
      {"ipv4interface", ipv4 + "/(?:3[0-2]|[12]?[0-9])"},
      {"ipv4network", "(?:" + octet + "\\.0\\.0\\.0/8|" + octet + "\\." + octet + "\\.0\\.0/16|" + octet + "(?:\\." +
                          octet + "){2}\\.0/24|" + ipv4 + "/32)"},
      {"ipv6interface", ipv6 + "/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9])"},
      {"ipv6network", ipv6 + "/128"},
      {"uri", uri},
      {"url", uri},
      {"iri", uri},
      {"multi-host-uri", uri},
      {"uri-template", uri},
      {"uri-reference", "(?:" + uri + "|" + path + ")"},
      {"iri-reference", "(?:" + uri + "|" + path + ")"},
      {"json-pointer", pointer},
      {"relative-json-pointer", "(?:0|[1-9][0-9]{0,3})(?:#|" + pointer + ")"},
      {"regex", "[a-zA-Z0-9 _.-]*"},
      {"byte", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
      {"base64", "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
      {"base64url", "(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2,3})?"},
      {"color", "#" + hex + "{6}"},
      {"binary", ""},
      {"password", ""},
      {"path", ""},
      {"file-path", ""},
      {"directory-path", ""},
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
