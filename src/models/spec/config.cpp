// SPDX-License-Identifier: Apache-2.0
#include "models/spec/config.h"

#include "base/error.h"

namespace apus {

namespace {
[[noreturn]] void wrong(const char* key, const char* wanted, const Json& found) {
  fail(Fault::Model, "config.json: '", key, "' should be ", wanted, ", it is ", found.dump().substr(0, 80));
}

// Empty when there is none; each item must be as `fits` says.
template <class T>
std::vector<T> list_of(const char* key, const Json* list, const char* wanted, bool (Json::*fits)() const noexcept) {
  std::vector<T> all;
  if (!list) return all;
  if (!list->is_array()) wrong(key, wanted, *list);
  for (const Json& item : *list) {
    if (!(item.*fits)()) wrong(key, wanted, *list);
    all.push_back(item.get<T>());
  }
  return all;
}
}  // namespace

const Json* Config::find(const char* key) const {
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

int64_t Config::integer(const char* key) const {
  const Json* value = find(key);
  require(value, Fault::Model, "config.json: '", key, "' is missing");
  const bool whole = value->is_number_integer() ||
                     (value->is_number_float() &&
                      value->get<double>() == static_cast<double>(static_cast<int64_t>(value->get<double>())));
  if (!whole) wrong(key, "a whole number", *value);
  const auto number = value->get<int64_t>();
  require(number >= 0 && number <= (int64_t{1} << 40), Fault::Model, "config.json: '", key, "' = ", number,
          " is out of range");
  return number;
}

int64_t Config::integer(const char* key, int64_t fallback) const { return find(key) ? integer(key) : fallback; }

double Config::number(const char* key, double fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_number()) wrong(key, "a number", *value);
  return value->get<double>();
}

bool Config::flag(const char* key, bool fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) wrong(key, "true or false", *value);
  return value->get<bool>();
}

std::string Config::text(const char* key, const std::string& fallback) const {
  const Json* value = find(key);
  if (!value) return fallback;
  if (!value->is_string()) wrong(key, "a text", *value);
  return value->get<std::string>();
}

std::vector<int64_t> Config::integers(const char* key) const {
  return list_of<int64_t>(key, find(key), "a list of whole numbers", &Json::is_number_integer);
}
std::vector<double> Config::numbers(const char* key) const {
  return list_of<double>(key, find(key), "a list of numbers", &Json::is_number);
}
std::vector<std::string> Config::texts(const char* key) const {
  return list_of<std::string>(key, find(key), "a list of texts", &Json::is_string);
}

}  // namespace apus
