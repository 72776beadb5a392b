// SPDX-License-Identifier: Apache-2.0
// Who may ask: API keys, and web pages of other origins. Shared by the API and by what passes requests on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/api_error.h"
#include "serve/http.h"
#include "serve/key_book.h"

namespace apus {

struct Access {
  std::string api_key;                       // empty: everybody may ask
  std::vector<std::string> allowed_origins;  // of browsers' pages; "*": all; empty: none (CORS off)
  std::shared_ptr<KeyBook> keys = nullptr;   // of several people, beside api_key, which is the administrator's then

  void check_key(const HttpCall& call) const;  // ApiError 401; takes the same time wherever keys differ
  bool is_administrator(const HttpCall& call) const;
  std::string person(const HttpCall& call) const;  // whose key of `keys` it brings; empty: nobody's
  void allow_origin(const HttpCall& call, HttpAnswer& answer) const;
  // The answer to OPTIONS: a browser asks before it sends a request, or anybody asks about the whole server ("*").
  std::optional<HttpAnswer> preflight(const HttpCall& call) const;
  // Of a server that passes requests on: the final answer to one that must not be; nothing: it may. `page`: the page at
  // "/" is open to all.
  std::optional<HttpAnswer> refused(const HttpCall& call, bool page) const;
};

// In the form of the API that the path belongs to.
HttpAnswer error_answer(const HttpCall& call, const ApiError& error);

}  // namespace apus
