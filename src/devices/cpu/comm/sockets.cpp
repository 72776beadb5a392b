// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/comm/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <utility>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"

namespace apus::cpu {

namespace {

constexpr size_t kTokenBytes = 32;

std::string errno_text() { return ::strerror(errno); }

// What a stranger that finds the port cannot know.
std::string make_token() {
  std::random_device random;
  std::string token;
  while (token.size() < kTokenBytes) token += "0123456789abcdef"[random() % 16];
  return token;
}

std::string text_of(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

// The first address of the interface that GLOO_SOCKET_IFNAME names, or of the first that leads elsewhere; or "".
std::string interface_address() {
  const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* i = all; i && found.empty(); i = i->ifa_next) {
    if (!i->ifa_addr || i->ifa_addr->sa_family != AF_INET || !(i->ifa_flags & IFF_UP)) continue;
    const bool taken = wanted ? std::string(wanted) == i->ifa_name : !(i->ifa_flags & IFF_LOOPBACK);
    if (taken) found = text_of(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr);
  }
  ::freeifaddrs(all);
  require(!wanted || !found.empty(), Fault::Comm, "GLOO_SOCKET_IFNAME=", wanted ? wanted : "",
          " names no interface with an IPv4 address");
  return found;
}

// The address of this machine on the way to `master`, which others can reach too. The master's own way to itself is
// often 127.0.1.1, which nobody else can reach.
std::string own_address(const std::string& master) {
  if (std::getenv("GLOO_SOCKET_IFNAME")) return interface_address();
  if (master == "127.0.0.1" || master == "localhost") return "127.0.0.1";
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET, hints.ai_socktype = SOCK_DGRAM;
  std::string mine;
  if (::getaddrinfo(master.c_str(), "9", &hints, &found) == 0 && found) {
    const Descriptor probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    socklen_t length = sizeof address;
    if (probe.is_open() && ::connect(probe.number(), found->ai_addr, found->ai_addrlen) == 0 &&
        ::getsockname(probe.number(), reinterpret_cast<sockaddr*>(&address), &length) == 0)
      mine = text_of(address.sin_addr);
    ::freeaddrinfo(found);
  }
  if (mine.empty() || mine.rfind("127.", 0) == 0) mine = interface_address();
  return mine.empty() ? "127.0.0.1" : mine;
}

Descriptor listen_anywhere(int* port) {
  Descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof address;
  const bool listens = s.is_open() && ::bind(s.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                       ::listen(s.number(), 1024) == 0 &&
                       ::getsockname(s.number(), reinterpret_cast<sockaddr*>(&address), &length) == 0;
  require(listens, Fault::Comm, "cannot listen for the other ranks: ", errno_text());
  *port = ntohs(address.sin_port);
  return s;
}

bool ready(int socket, short events, double seconds) {
  pollfd p{socket, events, 0};
  return ::poll(&p, 1, std::max(0, static_cast<int>(seconds * 1000))) > 0;
}

// All `bytes` within the time, while connections are made.
bool read_all(int socket, void* data, size_t bytes, double seconds) {
  const Stopwatch watch;
  for (size_t done = 0; done < bytes;) {
    if (!ready(socket, POLLIN, seconds - watch.seconds())) return false;
    const ssize_t n = ::recv(socket, static_cast<char*>(data) + done, bytes - done, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return false;
    done += static_cast<size_t>(std::max<ssize_t>(n, 0));
  }
  return true;
}

void prepare_socket(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

}  // namespace

const char* op_name(Op op) {
  switch (op) {
    case Op::AllReduce:
      return "all_reduce";
    case Op::AllGather:
      return "all_gather";
    case Op::ReduceScatter:
      return "reduce_scatter";
    case Op::AllToAll:
      return "all_to_all";
    case Op::Broadcast:
      return "broadcast";
    case Op::SendRecv:
      return "send/recv";
    case Op::Barrier:
      return "barrier";
  }
  return "an unknown operation";
}

struct Peers::Header {
  uint32_t op, number;
  uint64_t bytes;
};

struct Peers::Side {
  bool used = false, done = true;
  Header header{};
  size_t at = 0;  // header and payload as one stream
  size_t total() const { return sizeof(Header) + header.bytes; }
};

struct Peers::Transfer {
  const std::vector<Out>& out;
  const std::vector<In>& in;
  std::vector<Side> sends, receives;
};

std::string Peers::name(int peer) const { return str("rank ", spec_.names[static_cast<size_t>(peer)]); }
std::string Peers::me() const { return name(spec_.rank); }

Peers::Peers(Spec spec)
    : spec_(std::move(spec)),
      sockets_(static_cast<size_t>(spec_.size), -1),
      sent_(sockets_.size(), 0),
      received_(sockets_.size(), 0) {
  int port = 0;
  const Stopwatch watch;
  const Descriptor listener = listen_anywhere(&port);
  if (spec_.rank == 0) spec_.publish("token", make_token());
  spec_.publish(str("at/", spec_.rank), str(own_address(spec_.master), ":", port));
  const std::string token = spec_.look_up("token", name(0));
  require(token.size() == kTokenBytes, Fault::Comm,
          "the shared table holds what no Apus wrote; do the ranks run the same version?");
  for (int peer = 0; peer < spec_.rank; ++peer) {
    const std::string at = spec_.look_up(str("at/", peer), name(peer));
    const size_t colon = at.rfind(':');
    require(colon != std::string::npos, Fault::Comm, "'", at, "' is no address of ", name(peer));
    connect(at.substr(0, colon), std::atoi(at.c_str() + colon + 1), peer, token);
  }
  // Names who never came.
  for (int peer = spec_.rank + 1; peer < spec_.size; ++peer) spec_.look_up(str("at/", peer), name(peer));
  while (std::count(sockets_.begin(), sockets_.end(), -1) > 1)
    accept_one(listener.number(), token, spec_.timeout_s - watch.seconds());
}

Peers::~Peers() {
  for (const int s : sockets_)
    if (s >= 0) ::close(s);
}

void Peers::hang_up() {
  for (const int s : sockets_)
    if (s >= 0) ::shutdown(s, SHUT_RDWR);
}

void Peers::connect(const std::string& address, int port, int to, const std::string& token) {
  Descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in target{};
  target.sin_family = AF_INET, target.sin_port = htons(static_cast<uint16_t>(port));
  const bool connected = s.is_open() && ::inet_pton(AF_INET, address.c_str(), &target.sin_addr) == 1 &&
                         ::connect(s.number(), reinterpret_cast<sockaddr*>(&target), sizeof target) == 0;
  const std::string why = connected ? "" : errno_text();  // before spec_.failure() asks, and errno is of that
  require(connected, Fault::Comm, me(), " cannot connect to ", name(to), " at ", address, ":", port, ": ", why,
          "; a firewall between the machines? ", connected ? "" : spec_.failure());
  const std::string hello = token + str(spec_.rank, " ");
  const std::string padded = hello + std::string(kTokenBytes + 16 - hello.size(), ' ');
  const bool greeted =
      ::send(s.number(), padded.data(), padded.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(padded.size());
  require(greeted, Fault::Comm, me(), " cannot speak to ", name(to), ": ", errno_text());
  prepare_socket(s.number());
  sockets_[static_cast<size_t>(to)] = s.release();
}

void Peers::accept_one(int listener, const std::string& token, double left_s) {
  std::string missing;
  for (int peer = spec_.rank + 1; peer < spec_.size; ++peer)
    if (sockets_[static_cast<size_t>(peer)] < 0) missing += (missing.empty() ? "" : ", ") + name(peer);
  require(ready(listener, POLLIN, left_s), Fault::Comm, missing, " did not connect to ", me(), " within ",
          spec_.timeout_s, " s: a firewall between the machines? ", spec_.failure());
  Descriptor s(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  char hello[kTokenBytes + 16];
  if (!s.is_open() || !read_all(s.number(), hello, sizeof hello, std::min(10.0, left_s))) return;
  const int peer = std::atoi(std::string(hello + kTokenBytes, 16).c_str());
  if (std::string(hello, kTokenBytes) != token || peer <= spec_.rank || peer >= spec_.size) return;  // a stranger
  prepare_socket(s.number());
  sockets_[static_cast<size_t>(peer)] = s.release();
}

void Peers::lost(Op op, int peer, const std::string& why) const {
  const std::string reason = spec_.failure();
  fail(Fault::Comm, me(), " lost the connection to ", name(peer), " in ", op_name(op), " (", why,
       "): that process has ended. ", reason.empty() ? "See its own output" : reason);
}

void Peers::late(Op op, const Transfer& t) const {
  std::string waiting;
  for (int r = 0; r < spec_.size; ++r) {
    const auto i = static_cast<size_t>(r);
    if (!t.sends[i].done || !t.receives[i].done) waiting += (waiting.empty() ? "" : ", ") + name(r);
  }
  const std::string reason = spec_.failure();
  fail(Fault::Comm, me(), " waited ", spec_.timeout_s, " s in ", op_name(op), " for ", waiting,
       ": still busy, stuck, or cut off. ",
       reason.empty() ? "See what it does there; --ddp_timeout sets the limit" : reason);
}

void Peers::check_header(Op op, const Transfer& t, int peer) const {
  const auto i = static_cast<size_t>(peer);
  const Header& h = t.receives[i].header;
  require(h.op == static_cast<uint32_t>(op) && h.number == received_[i] && h.bytes == t.in[i].bytes, Fault::Comm,
          "the ranks do different things: ", me(), " expects ", t.in[i].bytes, " bytes of ", op_name(op), " (message ",
          received_[i], ") from ", name(peer), ", which sends ", h.bytes, " bytes of ", op_name(static_cast<Op>(h.op)),
          " (message ", h.number, "). Were they started with the same options and data?");
}

// Both return whether anything moved.
bool Peers::push(Op op, Transfer& t, int peer) {
  const auto i = static_cast<size_t>(peer);
  Side& side = t.sends[i];
  bool moved = false;
  while (!side.done) {
    const bool head = side.at < sizeof(Header);
    const char* from = head ? reinterpret_cast<const char*>(&side.header) + side.at
                            : static_cast<const char*>(t.out[i].data) + (side.at - sizeof(Header));
    const size_t left = head ? sizeof(Header) - side.at : side.total() - side.at;
    const ssize_t n =
        ::send(sockets_[i], from, left, MSG_NOSIGNAL | MSG_DONTWAIT | (head && side.header.bytes ? MSG_MORE : 0));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) lost(op, peer, errno_text());
    side.at += static_cast<size_t>(n), moved = true;
    side.done = side.at == side.total();
  }
  return moved;
}

bool Peers::pull(Op op, Transfer& t, int peer) {
  const auto i = static_cast<size_t>(peer);
  Side& side = t.receives[i];
  bool moved = false;
  while (!side.done) {
    const bool head = side.at < sizeof(Header);
    char* to = head ? reinterpret_cast<char*>(&side.header) + side.at
                    : static_cast<char*>(t.in[i].data) + (side.at - sizeof(Header));
    const size_t left = head ? sizeof(Header) - side.at : side.total() - side.at;
    const ssize_t n = ::recv(sockets_[i], to, left, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) lost(op, peer, n == 0 ? "closed" : errno_text());
    side.at += static_cast<size_t>(n), moved = true;
    if (head && side.at == sizeof(Header)) check_header(op, t, peer);
    side.done = side.at >= sizeof(Header) && side.at == side.total();
  }
  return moved;
}

void Peers::exchange(Op op, const std::vector<Out>& out, const std::vector<In>& in) {
  Transfer t{out, in, std::vector<Side>(out.size()), std::vector<Side>(in.size())};
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].used) t.sends[i] = {true, false, {static_cast<uint32_t>(op), sent_[i], out[i].bytes}, 0};
    if (in[i].used) t.receives[i] = {true, false, {}, 0};
  }
  // The limit is on silence: large buffers on slow lines may take their time.
  Stopwatch idle;
  for (std::vector<pollfd> watched;;) {
    bool moved = false;
    watched.clear();
    for (int step = 1; step < size(); ++step) {  // not all towards the same rank first
      const int peer = (rank() + step) % size();
      const auto i = static_cast<size_t>(peer);
      moved |= push(op, t, peer);
      moved |= pull(op, t, peer);
      const int events = (t.sends[i].done ? 0 : POLLOUT) | (t.receives[i].done ? 0 : POLLIN);
      if (events) watched.push_back({sockets_[i], static_cast<short>(events), 0});
    }
    if (watched.empty()) break;
    if (moved) idle.restart();
    const double left = spec_.timeout_s - idle.seconds();
    if (left <= 0) late(op, t);
    ::poll(watched.data(), watched.size(), static_cast<int>(std::min(left, 3600.0) * 1000) + 1);
  }
  // One thread may send while another receives: each touches its own counts.
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].used) ++sent_[i];
    if (in[i].used) ++received_[i];
  }
}

}  // namespace apus::cpu
