// SPDX-License-Identifier: Apache-2.0
// What a Tokenizer is made of.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"
#include "text/token_model.h"
#include "text/tokenizer.h"

namespace apus {

struct TokenizerParts {
  std::unique_ptr<const Normalizer> normalizer;  // may be null
  PreTokenizers pre_tokenizers;
  std::unique_ptr<const TokenModel> model;
  Tokenizer::Marks marks;                       // what the post-processor puts around a text
  std::optional<Tokenizer::Marks> of_pair;      // and around and between two
  std::unique_ptr<const TokenDecoder> decoder;  // null: tokens joined by spaces
  // Decoding joins the bytes of the tokens; what is not UTF-8 becomes U+FFFD.
  bool byte_decoder = false;
  std::vector<AddedToken> added;
  std::vector<int32_t> added_at;  // by id: place in `added`, or -1
  std::unordered_map<std::string, int32_t> added_id;
  bool renumbered = false;             // added tokens have other ids than the file says
  AddedTokenFinder raw_finder;         // in the text as given
  AddedTokenFinder normalized_finder;  // in normalised text
  int32_t size = 0;                    // largest id + 1

  std::map<std::string, std::string> special_tokens;  // bos_token, eos_token, ...
  std::vector<std::string> additional_special_tokens;
  bool clean_up = false;
  int64_t model_max_length = 0;

  const AddedToken* added_token(int32_t id) const {
    const int32_t at = id >= 0 && id < size ? added_at[static_cast<size_t>(id)] : -1;
    return at < 0 ? nullptr : &added[static_cast<size_t>(at)];
  }
};

// Reads the parts from texts (tokenizer_load.cpp). `config` is that of tokenizer_config.json, or empty.
std::unique_ptr<TokenizerParts> read_tokenizer(std::string_view tokenizer, std::string_view config,
                                               const std::string& name);
// SentencePiece's or tiktoken's file.
std::unique_ptr<TokenizerParts> read_tokenizer_file(std::string_view bytes, const std::string& name,
                                                    std::string_view config);
// From a folder or file.
std::unique_ptr<TokenizerParts> read_tokenizer(const std::filesystem::path& path);

}  // namespace apus
