// SPDX-License-Identifier: Apache-2.0
// A tokenizer for the fuzz targets of guided decoding: all bytes, a few longer tokens, and special ones.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/answer/text_engine.h"
#include "text/tokenizer.h"

namespace apus::fuzz {

inline std::shared_ptr<const Tokenizer> byte_tokenizer(const std::vector<std::string>& longer,
                                                       const std::vector<std::string>& special) {
  Json vocabulary = Json::object();
  int id = 0;
  for (char32_t b = 0, others = 256; b < 256; ++b) {
    // The byte alphabet of GPT-2: printable bytes stand for themselves, the others for characters from 256 on.
    const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
    const char32_t c = printable ? b : others++;
    std::string text;
    if (c < 0x80)
      text = static_cast<char>(c);
    else
      text = {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 63))};
    vocabulary[text] = id++;
  }
  for (const auto& token : longer) vocabulary[token] = id++;
  Json added = Json::array();
  for (const auto& text : special)
    added.push_back({{"id", id++},
                     {"content", text},
                     {"special", true},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false}});
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json file = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}},
                     {"pre_tokenizer", bytes},
                     {"decoder", bytes},
                     {"added_tokens", added}};
  return Tokenizer::from_json(file.dump());
}

}  // namespace apus::fuzz
