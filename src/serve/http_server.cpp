// SPDX-License-Identifier: Apache-2.0
#include "serve/http_server.h"

#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "serve/http_connection.h"

namespace apus {

using asio::ip::tcp;

struct HttpServer::State {
  const std::shared_ptr<HttpShared> shared = std::make_shared<HttpShared>();
  asio::io_context& io = *shared->io;
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> busy = asio::make_work_guard(io);
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::optional<asio::ssl::context> tls;
  std::vector<std::weak_ptr<AnyConnection>> connections;
  std::thread thread;
  int port = 0;

  void open_tls();
  void bind();
  void accept();
  void take(tcp::socket socket);
  template <class F>
  void each(F f) {
    for (const auto& weak : std::exchange(connections, {}))
      if (const auto c = weak.lock()) {
        connections.push_back(weak);
        f(*c);
      }
  }
};

namespace {
// A descriptor for each connection, and some for files: many systems begin at 1024, and let a process ask for more.
void make_room(int64_t connections) {
  rlimit files{};
  const auto wanted = static_cast<rlim_t>(connections + 256);
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
  files.rlim_cur = std::min(wanted, files.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < wanted)
    log_warning("this process may open ", files.rlim_cur, " files (ulimit -n), which are too few for ", connections,
                " connections");
}
}  // namespace

void HttpServer::State::open_tls() {
  const HttpServerSpec& spec = shared->spec;
  if (spec.tls_key.empty()) return;
  tls.emplace(asio::ssl::context::tls_server);
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                   asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  // Asks nobody.
  tls->set_password_callback([](size_t, asio::ssl::context::password_purpose) { return std::string(); });
  ErrorCode code;
  tls->use_certificate_chain_file(spec.tls_certificate, code);
  require(!code, Fault::Usage, "--ssl_certfile ", spec.tls_certificate, ": ", code.message());
  tls->use_private_key_file(spec.tls_key, asio::ssl::context::pem, code);
  require(!code, Fault::Usage, "--ssl_keyfile ", spec.tls_key, ": ", code.message());
}

void HttpServer::State::bind() {
  const HttpServerSpec& spec = shared->spec;
  ErrorCode code;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(spec.host, "", tcp::resolver::passive, code);
  require(!code && !found.empty(), Fault::Usage, "--host ", spec.host,
          " is no address of this machine: ", code.message());
  tcp::endpoint endpoint = found.begin()->endpoint();
  const int last = spec.port == 0 ? 0 : std::min(spec.port + spec.ports_to_try, 65535);
  for (int p = spec.port; p <= last; ++p) {
    endpoint.port(static_cast<unsigned short>(p));
    acceptor = tcp::acceptor(io);
    acceptor.open(endpoint.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint, code);
    if (!code) acceptor.listen(tcp::acceptor::max_listen_connections, code);
    if (!code) {
      port = acceptor.local_endpoint().port();
      if (spec.port && port != spec.port)
        log_warning("port ", spec.port, " is taken, so this server listens at ", port);
      return;
    }
    require(code == asio::error::address_in_use, Fault::Usage, "cannot listen at ", spec.host, ":", p, ": ",
            code.message());
  }
  fail(Fault::Usage, "the ports from ", spec.port, " to ", last, " are all taken; give a free one by --port");
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](ErrorCode code, tcp::socket socket) {
    if (code == asio::error::operation_aborted || !acceptor.is_open()) return;
    if (!code) {
      take(std::move(socket));
      return accept();
    }
    // Out of descriptors, mostly: accepting goes on when there may be some again.
    log_warning("a connection could not be accepted: ", code.message());
    pause.expires_after(std::chrono::milliseconds(100));
    pause.async_wait([this](ErrorCode stopped) {
      if (!stopped) accept();
    });
  });
}

void HttpServer::State::take(tcp::socket socket) {
  ErrorCode code;
  const auto remote = socket.remote_endpoint(code);
  if (code) return;
  const std::string peer = str(remote.address().to_string(), ":", remote.port());
  if (shared->connections >= shared->spec.max_connections) {
    const HttpCall call{.id = request_id({}), .peer = peer};
    HttpAnswer refusal = shared->service->broken(call, 503, "The server has as many connections as it takes.");
    refusal.headers.emplace_back("Retry-After", "5");
    const std::string text =
        head_text(refusal, call.id, false, static_cast<int64_t>(refusal.body.size())) + refusal.body;
    asio::write(socket, asio::buffer(text), code);  // into the empty send buffer of a fresh socket: does not block
    return;
  }
  socket.set_option(tcp::no_delay(true), code);
  std::shared_ptr<AnyConnection> c;
  if (tls)
    c = std::make_shared<Connection<beast::ssl_stream<beast::tcp_stream>>>(
        beast::ssl_stream<beast::tcp_stream>(beast::tcp_stream(std::move(socket)), *tls), peer, shared);
  else
    c = std::make_shared<Connection<beast::tcp_stream>>(beast::tcp_stream(std::move(socket)), peer, shared);
  if (connections.size() > 64 && connections.size() > 2 * static_cast<size_t>(shared->connections))
    each([](AnyConnection&) {});
  connections.push_back(c);
  c->start();
}

HttpServer::HttpServer(HttpServerSpec spec, std::shared_ptr<HttpService> service) : state_(std::make_unique<State>()) {
  state_->shared->spec = std::move(spec);
  state_->shared->service = std::move(service);
  make_room(state_->shared->spec.max_connections);
  state_->open_tls();
  state_->bind();
  state_->accept();
  state_->thread = std::thread([state = state_.get()] {
    ::pthread_setname_np(::pthread_self(), "serve-http");
    for (;;) {
      try {
        state->io.run();
        return;
      } catch (const std::exception& e) {
        log_error("in the server's thread: ", e.what());
      }
    }
  });
}

HttpServer::~HttpServer() { stop(); }

int HttpServer::port() const { return state_->port; }
int64_t HttpServer::connections() const { return state_->shared->connections; }

void HttpServer::stop_accepting() {
  asio::post(state_->io, [state = state_.get()] {
    state->shared->closing = true;
    ErrorCode ignored;
    state->acceptor.close(ignored);
    state->each([](AnyConnection& c) { c.close_idle(); });
  });
}

void HttpServer::stop() {
  if (!state_->thread.joinable()) return;
  asio::post(state_->io, [state = state_.get()] {
    state->shared->closing = true;
    ErrorCode ignored;
    state->acceptor.close(ignored);
    state->pause.cancel();
    state->each([](AnyConnection& c) { c.close_now(); });
    state->busy.reset();  // the thread ends when all that was under way has been told
  });
  state_->thread.join();
  state_->io.restart();
  // What handlers posted since: they are told that the client has gone.
  state_->io.poll();
}

}  // namespace apus
