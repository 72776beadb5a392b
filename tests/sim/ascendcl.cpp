// SPDX-License-Identifier: Apache-2.0
// A libascendcl.so without hardware: devices are books of account over host memory. ASCEND_RT_VISIBLE_DEVICES chooses
// among APUS_SIM_DEVICES (8) devices; each holds APUS_SIM_MEMORY bytes (64 GB). APUS_SIM_SOC (Ascend910B3) is their
// chip, APUS_SIM_CANN (8.3.RC1) the version of CANN. APUS_SIM_EXCLUSIVE names a folder by which processes see that
// another one holds a device: each is then in exclusive mode. Strict where the real one is: nothing before aclInit, no
// memory and no current device before aclrtSetDevice.
#include "ascendcl.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Block {
  int device;
  size_t size;
};

struct Node {
  std::mutex mutex;
  bool initialised = false;
  std::vector<int> visible;  // physical ids
  std::vector<size_t> used;  // per visible device
  std::unordered_map<void*, Block> blocks;
  std::unordered_map<int, int> locks;  // of devices in exclusive mode: a file each
  size_t capacity = size_t{64} << 30;
};

Node& node() {
  static Node* n = [] {
    auto* made = new Node;  // never destroyed: tensors may outlive static objects
    const char* count_text = std::getenv("APUS_SIM_DEVICES");
    const int count = count_text ? std::atoi(count_text) : 8;
    if (const char* memory = std::getenv("APUS_SIM_MEMORY")) made->capacity = std::strtoull(memory, nullptr, 10);
    const char* wanted = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (wanted && *wanted) {
      std::istringstream list(wanted);
      for (std::string id; std::getline(list, id, ',');) {  // as the driver does: the list ends at the first bad id
        char* end = nullptr;
        const long value = std::strtol(id.c_str(), &end, 10);
        if (end == id.c_str() || *end || value < 0 || value >= count) break;
        made->visible.push_back(static_cast<int>(value));
      }
    } else {
      for (int i = 0; i < count; ++i) made->visible.push_back(i);
    }
    made->used.assign(made->visible.size(), 0);
    return made;
  }();
  return *n;
}

constexpr int kNoDevice = -1;
thread_local int current = kNoDevice;
thread_local std::string last_error;

aclError refuse(aclError code, const std::string& why) {
  last_error = why;
  return code;
}

aclError not_ready() { return refuse(ACL_ERROR_UNINITIALIZE, "E39999: aclInit has not been called"); }
aclError no_device() { return refuse(ACL_ERROR_RT_CONTEXT_NULL, "EE1001: no device is set for this thread"); }

const char* set_by(const char* variable, const char* otherwise) {
  const char* text = std::getenv(variable);
  return text && *text ? text : otherwise;
}

// A device in exclusive mode: false when another process has set it.
bool held(int device) {
  const char* folder = std::getenv("APUS_SIM_EXCLUSIVE");
  if (!folder || node().locks.count(device)) return true;
  const std::string path = std::string(folder) + "/device" + std::to_string(device);
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (file >= 0) ::close(file);
    return false;
  }
  node().locks[device] = file;
  return true;
}

}  // namespace

extern "C" {

aclError aclInit(const char*) {
  std::lock_guard lock(node().mutex);
  if (node().initialised) return ACL_ERROR_REPEAT_INITIALIZE;
  node().initialised = true;
  return ACL_SUCCESS;
}

aclError aclFinalize(void) { return ACL_SUCCESS; }

aclError aclrtGetDeviceCount(uint32_t* count) {
  if (!node().initialised) return not_ready();
  *count = static_cast<uint32_t>(node().visible.size());
  return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t device) {
  std::lock_guard lock(node().mutex);
  if (!node().initialised) return not_ready();
  if (device < 0 || device >= static_cast<int32_t>(node().visible.size()))
    return refuse(ACL_ERROR_RT_INVALID_DEVICEID, "EE1001: invalid device id");
  if (!held(node().visible[static_cast<size_t>(device)]))
    return refuse(ACL_ERROR_RT_DEV_SETUP_ERROR, "EE8888: the device is in exclusive mode and another process has it");
  current = device;
  return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t* device) {
  if (current == kNoDevice) return no_device();
  *device = current;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t) { return ACL_SUCCESS; }
aclError aclrtSynchronizeDevice(void) { return ACL_SUCCESS; }

aclError aclrtMalloc(void** pointer, size_t size, int) {
  std::lock_guard lock(node().mutex);
  if (current == kNoDevice) return no_device();
  const auto device = static_cast<size_t>(current);
  if (node().used[device] + size > node().capacity)
    return refuse(ACL_ERROR_RT_MEMORY_ALLOCATION, "EL0004: Failed to allocate memory.");
  void* p = std::aligned_alloc(64, (size + 63) / 64 * 64);
  if (!p) return refuse(ACL_ERROR_RT_MEMORY_ALLOCATION, "EL0004: Failed to allocate memory.");
  node().used[device] += size;
  node().blocks[p] = {current, size};
  *pointer = p;
  return ACL_SUCCESS;
}

// Work is finished when its call returns, so a stream is but a name.
aclError aclrtCreateStream(void** stream) {
  if (current == kNoDevice) return no_device();
  *stream = new char;
  return ACL_SUCCESS;
}
aclError aclrtDestroyStream(void* stream) {
  delete static_cast<char*>(stream);
  return ACL_SUCCESS;
}
aclError aclrtSynchronizeStream(void* stream) { return stream ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM; }
aclError aclrtSynchronizeStreamWithTimeout(void* stream, int32_t) { return aclrtSynchronizeStream(stream); }

aclError aclrtFree(void* pointer) {
  std::lock_guard lock(node().mutex);
  const auto it = node().blocks.find(pointer);
  if (it == node().blocks.end()) return refuse(ACL_ERROR_INVALID_PARAM, "EE1001: not an address of this device");
  node().used[static_cast<size_t>(it->second.device)] -= it->second.size;
  node().blocks.erase(it);
  std::free(pointer);
  return ACL_SUCCESS;
}

aclError aclrtGetMemInfo(int, size_t* free, size_t* total) {
  std::lock_guard lock(node().mutex);
  if (current == kNoDevice) return no_device();
  *total = node().capacity;
  *free = node().capacity - node().used.at(static_cast<size_t>(current));
  return ACL_SUCCESS;
}

aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  *major = 1, *minor = 14, *patch = 0;
  return ACL_SUCCESS;
}

const char* aclrtGetSocName(void) { return set_by("APUS_SIM_SOC", "Ascend910B3"); }

aclError aclsysGetCANNVersion(int name, aclCANNPackageVersion* version) {
  if (name != 0) return ACL_ERROR_INVALID_PARAM;
  std::memset(version, 0, sizeof *version);
  std::snprintf(version->version, sizeof version->version, "%s", set_by("APUS_SIM_CANN", "8.3.RC1"));
  return ACL_SUCCESS;
}
const char* aclGetRecentErrMsg(void) { return last_error.c_str(); }
}
