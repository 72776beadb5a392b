// SPDX-License-Identifier: Apache-2.0
// A libascendcl.so without hardware: devices are books of account over host memory. ASCEND_RT_VISIBLE_DEVICES chooses among
// APUS_SIM_DEVICES (8) devices; each holds APUS_SIM_MEMORY bytes (64 GB).
#include "ascendcl.h"

#include <atomic>
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

thread_local int current = 0;
thread_local std::string last_error;

aclError refuse(aclError code, const std::string& why) {
  last_error = why;
  return code;
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
  *count = static_cast<uint32_t>(node().visible.size());
  return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= static_cast<int32_t>(node().visible.size())) return refuse(107001, "EE1001: invalid device id");
  current = device;
  return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t* device) {
  *device = current;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t) { return ACL_SUCCESS; }
aclError aclrtSynchronizeDevice(void) { return ACL_SUCCESS; }

aclError aclrtMalloc(void** pointer, size_t size, int) {
  std::lock_guard lock(node().mutex);
  const auto device = static_cast<size_t>(current);
  if (device >= node().used.size()) return refuse(107001, "EE1001: invalid device id");
  if (node().used[device] + size > node().capacity) return refuse(ACL_ERROR_RT_MEMORY_ALLOCATION, "EL0004: Failed to allocate memory.");
  void* p = std::aligned_alloc(64, (size + 63) / 64 * 64);
  if (!p) return refuse(ACL_ERROR_RT_MEMORY_ALLOCATION, "EL0004: Failed to allocate memory.");
  node().used[device] += size;
  node().blocks[p] = {current, size};
  *pointer = p;
  return ACL_SUCCESS;
}

// Work is finished when its call returns, so a stream is but a name.
aclError aclrtCreateStream(void** stream) {
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
  *total = node().capacity;
  *free = node().capacity - node().used.at(static_cast<size_t>(current));
  return ACL_SUCCESS;
}

aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  *major = 1, *minor = 14, *patch = 0;
  return ACL_SUCCESS;
}

const char* aclrtGetSocName(void) { return "Ascend910B3"; }
const char* aclGetRecentErrMsg(void) { return last_error.c_str(); }
}
