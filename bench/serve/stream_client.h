// SPDX-License-Identifier: Apache-2.0
// A client of an OpenAI-compatible server over a plain socket, which notes when each piece of an answer came.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace apus::bench {

double now();  // seconds, monotonic

struct Address {
  std::string host;
  int port = 80;
  std::string path;  // before /completions: "/v1"
};
Address address_of(const std::string& url);  // http only; Fault::Usage

struct Reply {
  int status = 0;  // 0: none came
  std::string body, error;
  bool whole = false;  // to its very end
};

struct Timed {
  bool ok = false;
  std::string error;
  double first = 0;  // seconds to the first token
  // Between tokens, or between the pieces of text of a server that does not count them.
  std::vector<double> gaps;
  int64_t prompt_tokens = 0, new_tokens = 0;
};

class Connection {  // of one thread; opened when it is needed, kept alive
 public:
  explicit Connection(Address address, double timeout_s = 600) : address_(std::move(address)), timeout_(timeout_s) {}
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Reply get(const std::string& path);
  Timed stream(const Json& body);                       // POST {path}/completions
  bool stream_and_leave(const Json& body, int pieces);  // closes after so many pieces; false: refused before that
  bool open();
  void close();

 private:
  bool send_request(const std::string& method, const std::string& path, const std::string& body);
  bool fill();                  // more bytes into buffer_
  bool line(std::string& out);  // without its end
  bool read_head(Reply& reply);
  bool read_piece(std::string& out);  // of a body: a chunk, or what has come; empty at its end
  bool read_body(Reply& reply);
  // The data of every event until f says false or [DONE]; false: cut off.
  template <class F>
  bool each_event(const F& f);

  const Address address_;
  const double timeout_;
  int socket_ = -1;
  std::string buffer_;
  bool chunked_ = false, keeps_ = false;
  int64_t length_ = -1;
};

}  // namespace apus::bench
