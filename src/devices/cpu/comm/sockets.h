// SPDX-License-Identifier: Apache-2.0
// Stream sockets from every rank of a group to every other, and the one thing done with them: to exchange buffers with
// all at once, within a time limit, knowing who is late and who is gone. No tensor library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace apus::cpu {

enum class Op : uint32_t { AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast, SendRecv, Barrier };
const char* op_name(Op op);

struct Out {
  const void* data = nullptr;
  size_t bytes = 0;
  bool used = false;
};
struct In {
  void* data = nullptr;
  size_t bytes = 0;
  bool used = false;
};

class Peers {
 public:
  struct Spec {
    int rank = 0, size = 1;
    double timeout_s = 600;
    // The first rank's address: the address that this machine uses towards it is the one told to the others.
    std::string master;
    std::vector<int> names;  // the members' ranks in the whole run, for messages
    std::function<void(const std::string& key, const std::string& value)> publish;
    std::function<std::string(const std::string& key, const std::string& what)> look_up;  // waits, within the limit
    std::function<std::string()> failure;  // what a failing rank left behind, or ""
  };
  explicit Peers(Spec spec);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  int rank() const { return spec_.rank; }
  int size() const { return spec_.size; }
  // Sends out[r] to rank r and receives in[r] from it, for all r that have one. Throws Fault::Comm. Two threads may
  // call this at a time if one of them only sends and the other only receives.
  void exchange(Op op, const std::vector<Out>& out, const std::vector<In>& in);
  void hang_up();  // from any thread: an exchange under way fails

 private:
  struct Header;
  struct Side;
  struct Transfer;
  void connect(const std::string& address, int port, int to, const std::string& token);
  void accept_one(int listener, const std::string& token, double left_s);
  void lost(Op op, int peer, const std::string& why) const;
  void late(Op op, const Transfer& transfer) const;
  void check_header(Op op, const Transfer& transfer, int peer) const;
  bool push(Op op, Transfer& transfer, int peer);
  bool pull(Op op, Transfer& transfer, int peer);
  std::string name(int peer) const;
  std::string me() const;

  Spec spec_;
  std::vector<int> sockets_;               // by rank; -1 at our own
  std::vector<uint32_t> sent_, received_;  // messages so far, by rank
};

}  // namespace apus::cpu
