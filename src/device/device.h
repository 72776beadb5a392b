// SPDX-License-Identifier: Apache-2.0
// What a kind of device can do beyond what c10 already knows of it (guards, streams and events are generic there).
// One subclass per kind, each in its own file under devices/, registered by name; nothing else names a vendor.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/comm.h"
#include "device/topology.h"

namespace apus {

struct Memory {
  int64_t total = 0, free = 0, peak = 0;  // bytes; peak since reset_peak()
};

// What a device was asked for once, and does again: it reads and writes the same memory each time.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void play() = 0;  // on the current stream
};
// What `work` asks of the current device, recorded without being done. It shares memory with `sharing`, if given: of
// the two one runs at a time, and leaves nothing behind that the other might not overwrite. Throws when the work cannot
// be recorded, as it waits for the device.
using Recorder = std::function<std::unique_ptr<Recording>(const std::function<void()>& work, const Recording* sharing)>;

class Store;  // device/store.h

// How the ranks of a communicator find each other.
struct Rendezvous {
  std::string address = "127.0.0.1";  // of the first rank
  int rank = 0, world = 1;
  double timeout_s = 600;  // of every wait
  std::shared_ptr<Store> store;
  std::string group = "world";  // a name of its own for every communicator that is made
  int device_index = 0;         // of this rank
};

class DeviceKind {
 public:
  virtual ~DeviceKind() = default;
  virtual const char* name() const = 0;  // what --device, logs and docs say (doctor/device_words.h)
  virtual c10::DeviceType type() const = 0;
  virtual int priority() const = 0;                  // auto takes the highest that is available
  virtual bool available(std::string* why_not) = 0;  // cheap; says why when it is not
  virtual void open(int index) = 0;                  // load the vendor library, initialise; throws Fault::Device
  virtual int count() const = 0;                     // visible devices
  virtual std::string label(int index) const = 0;    // "Ascend910B3", the processor's model name, ...
  virtual Memory memory(int index) const = 0;
  virtual void reset_peak(int index) = 0;
  virtual void release_cached() {}  // give cached blocks back
  virtual void synchronize(int index) const = 0;
  virtual void seed(uint64_t seed) = 0;                    // the device's default generator
  virtual bool supports(c10::ScalarType dtype) const = 0;  // for compute
  virtual int64_t cache_block() const { return 16; }       // positions in a block of the cache of keys and values
  // What an error text says about exhausted memory: the bytes asked for, 0 if not told, -1 if it is another error.
  virtual int64_t out_of_memory(const std::string& what) const;
  // What runs this op of ours, where it is not the reference.
  virtual std::string native_op(const std::string&) const { return ""; }
  virtual std::string library_version() const = 0;  // vendor library, for --version
  virtual std::string visibility_env() const { return ""; }
  virtual Recorder recorder() const { return {}; }   // empty: this kind records nothing
  virtual bool works_apart() const { return true; }  // the host goes on while it computes
  virtual std::unique_ptr<Comm> connect(const Rendezvous&, std::vector<int> ranks) const = 0;
  virtual std::vector<Status> status() const { return {}; }
  virtual Topology topology() const { return {}; }
  virtual std::vector<Check> checks() { return {}; }
};

struct RegisterDevice {
  explicit RegisterDevice(std::unique_ptr<DeviceKind> kind);
};

// A kind that this build could have and has not: why, and what to do. It is asked for by its name alone.
struct MissingDevice {
  MissingDevice(const std::string& name, std::string why);
};

// A device kind opened for use, and the index on it.
struct DeviceChoice {
  DeviceKind* kind = nullptr;
  c10::Device device = c10::Device(c10::kCPU);
  std::string name() const;  // "cpu", "npu:3": never c10's own spelling
};

std::vector<DeviceKind*> device_kinds();              // by falling priority
std::map<std::string, std::string> missing_kinds();   // name to why
DeviceKind& kind_of(c10::Device device);              // the kind that owns a tensor's device
DeviceKind& choose_kind(const std::string& wanted);   // usable, not opened yet
DeviceChoice open_device(const std::string& wanted);  // "auto", "cpu", "npu:1", ...
std::string device_name(c10::Device device);

}  // namespace apus
