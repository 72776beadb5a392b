// SPDX-License-Identifier: Apache-2.0
// One client's connection: reads requests one after the other, writes their replies, notices when the client leaves.
// Internal to http_server.cpp, the only file that includes Beast. Everything runs on the server's one thread.
#pragma once

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "serve/http_server.h"
#include "serve/http_text.h"

namespace apus {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;

// What all connections share.
struct HttpShared {
  HttpServerSpec spec;
  std::shared_ptr<HttpService> service;
  std::shared_ptr<asio::io_context> io = std::make_shared<asio::io_context>(1);
  std::atomic<int64_t> connections{0};
  bool closing = false;  // no further requests on connections that are there
};

class AnyConnection {
 public:
  virtual ~AnyConnection() = default;
  virtual void start() = 0;
  // Closes at once if no answer is under way, else after the answer.
  virtual void close_idle() = 0;
  virtual void close_now() = 0;
};

template <class Stream>
class Connection : public AnyConnection, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(Stream stream, std::string peer, std::shared_ptr<HttpShared> shared)
      : shared_(std::move(shared)), stream_(std::move(stream)), peer_(std::move(peer)) {
    ++shared_->connections;
  }
  ~Connection() override { --shared_->connections; }

  void start() override {
    if constexpr (kTls) {
      expires(shared_->spec.header_seconds);
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](ErrorCode code) {
        if (!code) return self->read_header(self->shared_->spec.header_seconds);
        if (is_plain_http(code)) self->send_plainly();
      });
    } else {
      read_header(shared_->spec.header_seconds);
    }
  }
  void close_idle() override {
    keep_alive_ = false;
    if (!answering_ && !mid_request_) close_now();
  }
  void close_now() override {
    closed_ = true;
    ErrorCode ignored;
    beast::get_lowest_layer(stream_).socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    beast::get_lowest_layer(stream_).close();
    leave();
    busy_.reset();
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;
  static constexpr int kLingerSeconds = 2;
  // Bytes of following requests that are read while one is answered.
  static constexpr size_t kAhead = 64 << 10;
  // What waits to be parsed: two heads at most. A body is taken out as it comes, but not the extensions of its chunks
  // and the headers behind the last.
  static constexpr size_t kUnparsed = 256 << 10;

  // The handlers' end of one answer. Outlives the connection and possibly the server: it must not keep the io_context,
  // whose queue may hold what holds this reply.
  class Reply : public Responder {
   public:
    Reply(std::weak_ptr<Connection> to, uint64_t turn, std::weak_ptr<asio::io_context> io)
        : to_(std::move(to)), turn_(turn), io_(std::move(io)) {}
    ~Reply() override {
      on_connection([](Connection& c) { c.abandoned(); });
    }
    void send(HttpAnswer answer) override {
      on_connection([answer = std::move(answer)](Connection& c) { c.send(answer); });
    }
    void begin(HttpAnswer head) override {
      on_connection([head = std::move(head)](Connection& c) { c.begin(head); });
    }
    void write(std::string part) override {
      on_connection([part = std::move(part)](Connection& c) { c.write_part(part); });
    }
    void end() override {
      on_connection([](Connection& c) { c.end(); });
    }
    void on_gone(std::function<void()> f) override {
      const auto io = io_.lock();
      if (!io) return f();
      asio::post(*io, [to = to_, turn = turn_, f = std::move(f)] {
        const auto c = to.lock();
        if (!c || c->closed_) return f();
        if (c->turn_ != turn || !c->answering_) return;
        c->gone_.push_back(f);
        if (c->half_closed_) c->close_now();
      });
    }

   private:
    template <class F>
    void on_connection(F f) {
      const auto io = io_.lock();
      if (!io) return;
      asio::post(*io, [to = to_, turn = turn_, f = std::move(f)] {
        const auto c = to.lock();
        if (c && !c->closed_ && c->turn_ == turn && c->answering_) f(*c);
      });
    }
    const std::weak_ptr<Connection> to_;
    const uint64_t turn_;
    const std::weak_ptr<asio::io_context> io_;
  };

  static bool is_plain_http(ErrorCode code) {
    return code.category() == asio::error::get_ssl_category() &&
           ERR_GET_REASON(static_cast<unsigned long>(code.value())) == SSL_R_HTTP_REQUEST;
  }
  // To a client that speaks plain HTTP on a port for TLS: sent without TLS, as it could not read anything else.
  void send_plainly() {
    out_ = head_text({.status = 400, .content_type = "text/plain", .headers = {}}, "", false, kUntilClose) +
           "This port speaks TLS: ask it by https://\n";
    asio::async_write(beast::get_lowest_layer(stream_), asio::buffer(out_),
                      [self = this->shared_from_this()](ErrorCode, size_t) { self->close_now(); });
  }

  void expires(int seconds) { beast::get_lowest_layer(stream_).expires_after(std::chrono::seconds(seconds)); }

  void read_header(int seconds) {
    parser_.emplace();
    parser_->header_limit(64 << 10);
    parser_->body_limit(static_cast<uint64_t>(shared_->spec.body_limit));
    mid_request_ = buffer_.size() > 0;
    expires(mid_request_ ? shared_->spec.header_seconds : seconds);
    if (mid_request_) return read_rest_of_header();
    stream_.async_read_some(buffer_.prepare(16 << 10), [self = this->shared_from_this()](ErrorCode code, size_t n) {
      if (code) return self->close_now();  // idle for too long, or the client has gone
      self->buffer_.commit(n);
      self->mid_request_ = true;
      self->expires(self->shared_->spec.header_seconds);
      self->read_rest_of_header();
    });
  }

  void read_rest_of_header() {
    if (const beast::string_view begin(static_cast<const char*>(buffer_.data().data()), buffer_.size());
        begin.starts_with("\r\n"))
      buffer_.consume(2);  // some clients end a body by an empty line too many
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = this->shared_from_this()](ErrorCode code, size_t) { self->header_there(code); });
  }

  // 0: nothing that could be answered.
  static int status_of(ErrorCode code) {
    if (code == beast::error::timeout) return 408;
    if (code == http::error::header_limit || code == http::error::buffer_overflow) return 431;
    if (code == http::error::body_limit) return 413;
    if (code.category() == make_error_code(http::error::bad_method).category() && code != http::error::end_of_stream &&
        code != http::error::partial_message)
      return 400;
    return 0;
  }

  void broken(ErrorCode code) {
    const int status = status_of(code);
    if (status == 0 || status == 408) return close_now();  // after a time-out the socket is closed already
    begin_answer();
    keep_alive_ = false;
    if (!call_) call_ = std::make_shared<HttpCall>(HttpCall{.id = request_id({}), .peer = peer_});
    std::string why = "This is no HTTP request that can be understood: " + code.message();
    if (status == 413)
      why = str("The body is larger than the ", shared_->spec.body_limit >> 20, " MiB that this server takes.");
    if (status == 431) why = "The headers are larger than 64 KiB.";
    send(shared_->service->broken(*call_, status, why));
  }

  void header_there(ErrorCode code) {
    if (parser_->is_header_done() || code == http::error::body_limit) take_header();
    if (code) return broken(code);
    begin_answer();
    const HeadFault fault = head_fault(*call_, http1_0_);
    const auto refused =
        fault.status ? shared_->service->broken(*call_, fault.status, fault.why) : shared_->service->admit(*call_);
    if (refused) {
      if (!parser_->is_done() || fault.status) keep_alive_ = false;  // its body is not waited for
      return send(*refused);
    }
    answering_ = false;
    if (call_->header("expect").empty() || http1_0_) return read_body();
    static const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
    expires(shared_->spec.write_seconds);
    asio::async_write(stream_, asio::buffer(go_on), [self = this->shared_from_this()](ErrorCode code, size_t) {
      if (code) return self->close_now();
      self->read_body();
    });
  }

  void take_header() {
    const auto& message = parser_->get();
    auto call = std::make_shared<HttpCall>();
    call->peer = peer_;
    call->method = std::string(message.method_string());
    split_target(std::string(message.target()), *call);
    for (const auto& field : message) {
      std::string name = lower(std::string(field.name_string()));
      const auto [at, first] = call->headers.emplace(std::move(name), field.value());
      if (!first) at->second += ", " + std::string(field.value());  // one that comes again is a list
    }
    call->id = request_id(call->header("x-request-id"));
    http1_0_ = message.version() < 11;
    keep_alive_ = message.keep_alive() && !shared_->closing;
    call_ = std::move(call);
  }

  void read_body() {
    expires(shared_->spec.body_seconds);
    http::async_read(stream_, buffer_, *parser_, [self = this->shared_from_this()](ErrorCode code, size_t) {
      if (code) return self->broken(code);
      self->call_->body = std::move(self->parser_->get().body());
      self->dispatch();
    });
  }

  void dispatch() {
    begin_answer();
    beast::get_lowest_layer(stream_).expires_never();
    busy_ = this->shared_from_this();
    watch();
    shared_->service->serve(call_, std::make_shared<Reply>(this->weak_from_this(), turn_, shared_->io));
  }

  void begin_answer() {
    ++turn_;
    answering_ = true;
    chunked_ = false;
    gone_.clear();
  }

  // Reads ahead while an answer is made, so that the client's leaving is seen at once.
  void watch() {
    if (watching_ || half_closed_ || buffer_.size() >= kAhead) return;
    watching_ = true;
    beast::get_lowest_layer(stream_).expires_never();  // a write under way keeps its own limit
    stream_.async_read_some(buffer_.prepare(4096), [self = this->shared_from_this()](ErrorCode code, size_t n) {
      self->watching_ = false;
      self->buffer_.commit(n);
      if (self->closed_) return;
      // No more comes: it may have left for good or not, which nobody can see before something is sent to it. So it has
      // left when work would go on for it, but an answer that is on its way goes there.
      self->half_closed_ = code == asio::error::eof && self->gone_.empty();
      if (code && code != asio::error::operation_aborted && !self->half_closed_) return self->close_now();
      if (const auto then = std::exchange(self->after_watch_, nullptr)) return (self.get()->*then)();
      if (self->answering_ && !code) self->watch();
    });
  }

  void send(const HttpAnswer& answer) {
    out_ += head_text(answer, call_->id, keep_alive_, static_cast<int64_t>(answer.body.size()));
    if (call_->method != "HEAD" && answer.status != 204) out_ += answer.body;
    ended();
  }
  void begin(const HttpAnswer& head) {
    chunked_ = !http1_0_;
    if (http1_0_) keep_alive_ = false;  // the end of the answer is the end of the connection
    out_ += head_text(head, call_->id, keep_alive_, chunked_ ? kChunked : kUntilClose);
    write_part(head.body);
    flush();
  }
  void write_part(const std::string& part) {
    if (part.empty()) return;
    out_ += chunked_ ? chunk_text(part) : part;
    if (out_.size() > shared_->spec.unsent_limit) return close_now();  // it reads too slowly
    flush();
  }
  void end() {
    if (chunked_) out_ += "0\r\n\r\n";
    ended();
  }
  void abandoned() {  // the handler gave no answer, or not all of it
    close_now();
  }
  void ended() {
    answering_ = false;
    ended_ = true;
    gone_.clear();
    flush();
    busy_.reset();
  }

  void flush() {
    if (writing_ || closed_) return;
    if (out_.empty()) {
      if (std::exchange(ended_, false)) without_watch(keep_alive_ ? &Connection::next : &Connection::close_gently);
      return;
    }
    writing_ = true;
    flying_.swap(out_);
    out_.clear();
    expires(shared_->spec.write_seconds);
    asio::async_write(stream_, asio::buffer(flying_), [self = this->shared_from_this()](ErrorCode code, size_t) {
      self->writing_ = false;
      if (code) return self->close_now();
      self->flush();
    });
  }

  // The read that watches the client ends first: two at once are not allowed.
  void without_watch(void (Connection::*then)()) {
    if (!watching_) return (this->*then)();
    after_watch_ = then;
    beast::get_lowest_layer(stream_).cancel();
  }
  void next() {
    call_.reset();
    mid_request_ = false;
    // Behind the end nothing is read again: Asio would wait for it in vain.
    if (!keep_alive_ || shared_->closing || (half_closed_ && buffer_.size() == 0)) return close_gently();
    read_header(shared_->spec.idle_seconds);
  }

  // Closing a socket while the client still sends would take the answer away from it:
  // so what it sends is read and dropped for a while.
  void close_gently() {
    if (closed_) return;
    expires(kLingerSeconds);
    if constexpr (kTls) {
      stream_.async_shutdown([self = this->shared_from_this()](ErrorCode) { self->close_now(); });
    } else if (half_closed_) {
      close_now();
    } else {
      ErrorCode ignored;
      stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
      drop_input();
    }
  }
  void drop_input() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(64 << 10), [self = this->shared_from_this()](ErrorCode code, size_t) {
      code ? self->close_now() : self->drop_input();
    });
  }

  void leave() {
    answering_ = false;
    for (const auto& f : std::exchange(gone_, {})) f();
  }

  const std::shared_ptr<HttpShared> shared_;  // first: the stream needs its io_context to the end
  Stream stream_;
  const std::string peer_;
  beast::flat_buffer buffer_{kUnparsed};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<HttpCall> call_;
  // Holds this connection itself while an answer is made, when no read or write may be under way that keeps it alive.
  std::shared_ptr<Connection> busy_;
  // The number of the present request on this connection; replies to earlier ones are out of date.
  uint64_t turn_ = 0;
  std::string out_, flying_;
  std::vector<std::function<void()>> gone_;
  bool answering_ = false, ended_ = false, chunked_ = false, http1_0_ = false, keep_alive_ = true, mid_request_ = false;
  void (Connection::*after_watch_)() = nullptr;
  bool watching_ = false, writing_ = false, closed_ = false, half_closed_ = false;
};

}  // namespace apus
