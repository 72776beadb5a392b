// SPDX-License-Identifier: Apache-2.0
// What tokenizer.json would say, of folders that have a file of another kind in its place.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "text/added_tokens.h"

namespace apus {

struct TokenizerSource {
  std::vector<std::pair<std::string, std::string>> model;  // members of its "model", each as JSON
  Json stages;                                             // normalizer, pre_tokenizer, post_processor, decoder
  std::vector<AddedToken> added;                           // with the ids that they have
  // bos_token and so on, where tokenizer_config.json does not say them.
  std::map<std::string, std::string> usual = {};
};

// A text without control characters as a JSON string.
std::string json_string(std::string_view text);
// added_tokens_decoder of tokenizer_config.json: texts of tokens by their ids.
std::map<int64_t, std::string> said_tokens(const Json& config);

// tiktoken's files: the bytes of a token in base64, and its rank, in each line.
bool is_rank_file(std::string_view text);
// `file`: qwen.tiktoken, hy.tiktoken, tiktoken.model (Kimi) or tokenizer.model (GLM-4): the name says how text is cut
// and which tokens are special. `config`: tokenizer_config.json; `sees`: tokens for pictures are among them.
TokenizerSource read_rank_file(std::string_view text, const std::string& file, const Json& config, bool sees);

// Mistral's tekken.json: tiktoken's tokens behind special ones, how text is cut, and how many of them count.
inline constexpr const char* kTekkenFile = "tekken.json";
TokenizerSource read_tekken(std::string_view text, const std::string& name);

// tokenizer.json of a folder; where it has SentencePiece's or tiktoken's file instead, that as one, without the
// vocabulary. Null: it has none of these.
Json tokenizer_json(const std::filesystem::path& folder);
// SentencePiece's tokenizer.model, BPE or unigram.
TokenizerSource read_sentence_piece(std::string_view bytes, const std::string& file, const Json& config);

// Of SentencePiece's vocabularies. Each way to make a piece of two others, best piece first; among equals as the
// vocabulary has them. Only normal pieces take part.
std::vector<std::pair<size_t, size_t>> merges_by_score(const std::vector<std::string>& pieces,
                                                       const std::vector<double>& scores,
                                                       const std::vector<bool>& normal);
inline constexpr const char* kMetaspace = "\xE2\x96\x81";
// How text becomes pieces and back: with `prefix`, a blank stands before it.
Json piece_stages(bool prefix);
// Tokens before a text, or both of two.
Json marks_before(const std::vector<std::pair<std::string, int64_t>>& tokens);

}  // namespace apus
