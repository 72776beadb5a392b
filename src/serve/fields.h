// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a request's JSON object: null is absent, the wrong type or range is a 400 that names the field.
// What a reader asks for is also the request's schema: given a place for one, it is written there as it is asked.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/answer/sampling_fields.h"

namespace apus {

class Fields {
 public:
  // prefix: "messages[0]." and the like, for errors. schema: takes the JSON schema of all that is asked for; the object
  // is empty then, and what is missing is not refused.
  explicit Fields(const Json& object, std::string prefix = "", Json* schema = nullptr);

  const Json* find(const char* key) const;  // null: absent
  std::optional<double> number(const char* key, double least, double most) const;
  std::optional<int64_t> whole(const char* key, int64_t least, int64_t most) const;
  std::optional<bool> boolean(const char* key) const;
  std::optional<std::string> text(const char* key) const;
  std::string needed_text(const char* key) const;
  std::optional<std::string> choice(const char* key, std::initializer_list<const char*> possible) const;
  std::vector<std::string> texts(const char* key, size_t most) const;  // a text or a list of them
  SamplingWishes sampling() const;                                     // but for the answer's length
  const Json* object(const char* key) const;
  const Json* list(const char* key) const;
  std::vector<int32_t> ids(const char* key, size_t most) const;  // a list of token ids
  void missing(const char* key,
               const char* wanted) const;  // an error; where a schema is written: that the key is needed
  // Fields that go on under their own names to another reader, whose schema says what they must be.
  void as_in(const Json& other) const;
  // A field that this server cannot honour: any value but `harmless` is an error that says why.
  void cannot(const char* key, const Json& harmless, const char* why) const;
  std::string name(const char* key) const { return prefix_ + key; }
  // An error that names the first key that was not asked for up to now.
  void refuse_unread() const;
  // Keys that were not asked for up to now, but for those that are mere hints: what they say has no effect.
  std::vector<std::string> unread(std::initializer_list<const char*> hints) const;

 private:
  void note(const char* key, Json must_be) const;

  const Json& json_;
  std::string prefix_;
  Json* const schema_;
  mutable std::set<std::string> read_;
};

// JSON from outside: ApiError 400, about `param`, when it is none, or would take too long or too much memory to hold.
Json parse_foreign(std::string_view text, const std::string& where, const std::string& param = "");

std::vector<int32_t> token_ids(const Json& list, const std::string& name);  // every one from 0 to 2^31 - 1

}  // namespace apus
