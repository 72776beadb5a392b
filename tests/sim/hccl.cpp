// SPDX-License-Identifier: Apache-2.0
// A libhccl.so without hardware: ranks are processes of this host that meet in shared memory. Names, numbers and
// argument orders follow the vendor's documentation; every call is finished when it returns. APUS_SIM_OLD_HCCL is the
// library of an older CANN, without HcclCommInitRootInfoConfig.
// Strict where the real one is: types, sizes of the configuration, limits.
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>

#include "base/half.h"

namespace {

enum Result { kSuccess = 0, kPara = 1, kPtr = 2, kInternal = 4, kNotSupport = 5, kSyscall = 8, kTimeout = 9 };

constexpr int kMostRanks = 16;
constexpr size_t kSlot = 1 << 20, kMail = 1 << 16;

struct Mail {
  std::atomic<uint64_t> full;
  uint64_t bytes;
  char data[kMail];
};
struct Shared {
  std::atomic<uint64_t> arrived[kMostRanks];
  std::atomic<uint64_t> more[kMostRanks];
  uint64_t lengths[kMostRanks][kMostRanks];
  char slot[kMostRanks][kSlot];
  Mail mail[kMostRanks][kMostRanks];
};

struct Comm {
  Shared* shared;
  uint32_t ranks, rank;
  uint64_t round = 0;
  std::string name;
};

double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
double limit(const char* variable, double otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::atof(text) : otherwise;
}

int wait_until(const std::function<bool()>& done, double seconds) {
  const double end = now() + seconds;
  for (int spins = 0; !done(); ++spins) {
    if (now() > end) return kTimeout;
    if (spins > 100) ::usleep(50);
  }
  return kSuccess;
}

int barrier(Comm& c, double seconds = limit("HCCL_EXEC_TIMEOUT", 1836)) {
  c.shared->arrived[c.rank].store(++c.round);
  return wait_until(
      [&] {
        for (uint32_t r = 0; r < c.ranks; ++r)
          if (c.shared->arrived[r].load() < c.round) return false;
        return true;
      },
      seconds);
}

size_t size_of(int type) {
  constexpr size_t sizes[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
  return type >= 0 && type < 12 ? sizes[type] : 0;
}

double load(int type, const char* p) {
  switch (type) {
    case 0:
      return *reinterpret_cast<const int8_t*>(p);
    case 1:
      return *reinterpret_cast<const int16_t*>(p);
    case 2:
      return *reinterpret_cast<const int32_t*>(p);
    case 3:
      return apus::f16_to_float(*reinterpret_cast<const uint16_t*>(p));
    case 4:
      return *reinterpret_cast<const float*>(p);
    case 7:
      return *reinterpret_cast<const uint8_t*>(p);
    case 10:
      return *reinterpret_cast<const double*>(p);
    case 11:
      return apus::bf16_to_float(*reinterpret_cast<const uint16_t*>(p));
    default:
      return static_cast<double>(*reinterpret_cast<const int64_t*>(p));
  }
}
void store(int type, char* p, double v) {
  switch (type) {
    case 0:
      *reinterpret_cast<int8_t*>(p) = static_cast<int8_t>(v);
      break;
    case 1:
      *reinterpret_cast<int16_t*>(p) = static_cast<int16_t>(v);
      break;
    case 2:
      *reinterpret_cast<int32_t*>(p) = static_cast<int32_t>(v);
      break;
    case 3:
      *reinterpret_cast<uint16_t*>(p) = apus::float_to_f16(static_cast<float>(v));
      break;
    case 4:
      *reinterpret_cast<float*>(p) = static_cast<float>(v);
      break;
    case 7:
      *reinterpret_cast<uint8_t*>(p) = static_cast<uint8_t>(v);
      break;
    case 10:
      *reinterpret_cast<double*>(p) = v;
      break;
    case 11:
      *reinterpret_cast<uint16_t*>(p) = apus::float_to_bf16(static_cast<float>(v));
      break;
    default:
      *reinterpret_cast<int64_t*>(p) = static_cast<int64_t>(v);
  }
}

// The elements [offset, offset + count) that all ranks put in their slots, combined.
void combine(const Comm& c, int type, int op, size_t offset, size_t count, char* out) {
  const size_t width = size_of(type);
  for (size_t i = 0; i < count; ++i) {
    double value = load(type, c.shared->slot[0] + (offset + i) * width);
    for (uint32_t r = 1; r < c.ranks; ++r) {
      const double next = load(type, c.shared->slot[r] + (offset + i) * width);
      value = op == 0 ? value + next : op == 1 ? value * next : op == 2 ? std::max(value, next) : std::min(value, next);
    }
    store(type, out + i * width, value);
  }
}

// Each rank puts a stretch of its data in its slot; take() reads the slots of all; and so on to the end.
int in_rounds(Comm& c, const void* in, size_t bytes, size_t step,
              const std::function<void(size_t begin, size_t bytes)>& take) {
  for (size_t begin = 0; begin < bytes; begin += step) {
    const size_t n = std::min(step, bytes - begin);
    if (in) std::memcpy(c.shared->slot[c.rank], static_cast<const char*>(in) + begin, n);
    if (const int code = barrier(c)) return code;
    take(begin, n);
    if (const int code = barrier(c)) return code;
  }
  return kSuccess;
}

int open_comm(uint32_t ranks, const char* root, uint32_t rank, void** out) {
  if (!root || !out) return kPtr;
  if (ranks == 0 || ranks > kMostRanks || rank >= ranks) return kPara;
  const int file = ::shm_open(root, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(Shared)) != 0) return kSyscall;
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) return kSyscall;
  auto* c = new Comm{static_cast<Shared*>(memory), ranks, rank, 0, root};
  const int code = barrier(*c, limit("HCCL_CONNECT_TIMEOUT", 120));
  // It lives on while it is mapped; on failure nothing is left either.
  ::shm_unlink(root);
  if (code) {
    ::munmap(memory, sizeof(Shared));
    delete c;
    return code;
  }
  *out = c;
  return kSuccess;
}

Comm& comm_of(void* comm) { return *static_cast<Comm*>(comm); }
bool bad(int type, const void* comm) { return !comm || size_of(type) == 0; }
// Reductions: i8, i16, i32, i64, f16, f32, bf16.
bool irreducible(int type) { return !((type >= 0 && type <= 5) || type == 11); }

}  // namespace

extern "C" {

int HcclGetRootInfo(char* root) {
  if (!root) return kPtr;
  std::random_device random;
  std::memset(root, 0, 4108);
  std::snprintf(root, 100, "/apus-sim-hccl-%d-%08x", static_cast<int>(::getpid()), random());
  return kSuccess;
}

int HcclCommInitRootInfo(uint32_t ranks, const char* root, uint32_t rank, void** comm) {
  return open_comm(ranks, root, rank, comm);
}

#ifndef APUS_SIM_OLD_HCCL
struct ConfigHead {
  size_t size;
  uint32_t magic, version;
  uint64_t reserved;
  uint32_t buffer_mb, deterministic;
};
int HcclCommInitRootInfoConfig(uint32_t ranks, const char* root, uint32_t rank, const ConfigHead* config, void** comm) {
  if (!config) return kPtr;
  if (config->magic != 0xf0f0f0f0 || config->size < sizeof(ConfigHead) || config->buffer_mb == 0 ||
      (config->deterministic > 2 && config->deterministic != 0xffffffff))
    return kPara;
  return open_comm(ranks, root, rank, comm);
}
uint32_t HcclGetCommConfigCapability() { return 3; }
#endif

int HcclCommDestroy(void* comm) {
  if (!comm) return kPtr;
  ::munmap(comm_of(comm).shared, sizeof(Shared));
  delete &comm_of(comm);
  return kSuccess;
}

const char* HcclGetErrorString(int code) {
  constexpr const char* names[] = {"no error",     "parameter error", "empty pointer",
                                   "memory error", "internal error",  "not support",
                                   "not found",    "unavailable",     "call system interface error",
                                   "timeout"};
  return code >= 0 && code < 10 ? names[code] : "unknown error";
}

int HcclAllReduce(void* in, void* out, uint64_t count, int type, int op, void* comm, void*) {
  if (bad(type, comm) || op < 0 || op > 3) return kPara;
  if (irreducible(type)) return kNotSupport;
  Comm& c = comm_of(comm);
  const size_t width = size_of(type);
  return in_rounds(c, in, count * width, kSlot, [&](size_t begin, size_t n) {
    combine(c, type, op, 0, n / width, static_cast<char*>(out) + begin);
  });
}

int HcclAllGather(void* in, void* out, uint64_t count, int type, void* comm, void*) {
  if (bad(type, comm)) return kPara;
  Comm& c = comm_of(comm);
  const size_t bytes = count * size_of(type);
  return in_rounds(c, in, bytes, kSlot, [&](size_t begin, size_t n) {
    for (uint32_t r = 0; r < c.ranks; ++r)
      std::memcpy(static_cast<char*>(out) + r * bytes + begin, c.shared->slot[r], n);
  });
}

int HcclReduceScatter(void* in, void* out, uint64_t count, int type, int op, void* comm, void*) {
  if (bad(type, comm) || op < 0 || op > 3) return kPara;
  if (irreducible(type)) return kNotSupport;
  Comm& c = comm_of(comm);
  const size_t width = size_of(type), mine = count * width * c.rank, end = mine + count * width;
  return in_rounds(c, in, count * width * c.ranks, kSlot, [&](size_t begin, size_t n) {
    const size_t from = std::max(begin, mine), to = std::min(begin + n, end);
    if (from < to)
      combine(c, type, op, (from - begin) / width, (to - from) / width, static_cast<char*>(out) + (from - mine));
  });
}

int HcclBroadcast(void* data, uint64_t count, int type, uint32_t root, void* comm, void*) {
  if (bad(type, comm) || root >= comm_of(comm).ranks) return kPara;
  Comm& c = comm_of(comm);
  return in_rounds(c, c.rank == root ? data : nullptr, count * size_of(type), kSlot, [&](size_t begin, size_t n) {
    if (c.rank != root) std::memcpy(static_cast<char*>(data) + begin, c.shared->slot[root], n);
  });
}

int HcclAlltoAllV(const void* in, const void* in_counts, const void* in_offsets, int in_type, const void* out,
                  const void* out_counts, const void* out_offsets, int out_type, void* comm, void*) {
  if (bad(in_type, comm) || in_type != out_type) return kPara;
  Comm& c = comm_of(comm);
  const auto *sc = static_cast<const uint64_t*>(in_counts), *so = static_cast<const uint64_t*>(in_offsets),
             *rc = static_cast<const uint64_t*>(out_counts), *ro = static_cast<const uint64_t*>(out_offsets);
  const size_t width = size_of(in_type), part = kSlot / kMostRanks;
  uint64_t got[kMostRanks] = {};
  for (size_t begin = 0;; begin += part) {
    bool more = false;
    for (uint32_t r = 0; r < c.ranks; ++r) {
      const size_t bytes = sc[r] * width, n = bytes > begin ? std::min(part, bytes - begin) : 0;
      std::memcpy(c.shared->slot[c.rank] + r * part, static_cast<const char*>(in) + so[r] * width + begin, n);
      c.shared->lengths[c.rank][r] = n;
      more |= begin + part < bytes;
    }
    c.shared->more[c.rank].store(more);
    if (const int code = barrier(c)) return code;
    bool any = false;
    for (uint32_t r = 0; r < c.ranks; ++r) {
      const uint64_t n = c.shared->lengths[r][c.rank];
      if (got[r] + n > rc[r] * width) return kPara;
      std::memcpy(static_cast<char*>(const_cast<void*>(out)) + ro[r] * width + got[r],
                  c.shared->slot[r] + c.rank * part, n);
      got[r] += n, any |= c.shared->more[r].load() != 0;
    }
    if (const int code = barrier(c)) return code;
    if (!any) break;
  }
  for (uint32_t r = 0; r < c.ranks; ++r)
    if (got[r] != rc[r] * width) return kPara;
  return kSuccess;
}

int HcclSend(void* data, uint64_t count, int type, uint32_t to, void* comm, void*) {
  if (bad(type, comm) || to >= comm_of(comm).ranks) return kPara;
  Comm& c = comm_of(comm);
  Mail& mail = c.shared->mail[c.rank][to];
  const size_t bytes = count * size_of(type);
  for (size_t begin = 0; begin < bytes; begin += kMail) {
    if (const int code = wait_until([&] { return mail.full.load() == 0; }, limit("HCCL_EXEC_TIMEOUT", 1836)))
      return code;
    mail.bytes = std::min(kMail, bytes - begin);
    std::memcpy(mail.data, static_cast<const char*>(data) + begin, mail.bytes);
    mail.full.store(1);
  }
  // As the real one: ends when received.
  return wait_until([&] { return mail.full.load() == 0; }, limit("HCCL_EXEC_TIMEOUT", 1836));
}

int HcclRecv(void* data, uint64_t count, int type, uint32_t from, void* comm, void*) {
  if (bad(type, comm) || from >= comm_of(comm).ranks) return kPara;
  Comm& c = comm_of(comm);
  Mail& mail = c.shared->mail[from][c.rank];
  const size_t bytes = count * size_of(type);
  for (size_t begin = 0; begin < bytes;) {
    if (const int code = wait_until([&] { return mail.full.load() == 1; }, limit("HCCL_EXEC_TIMEOUT", 1836)))
      return code;
    if (begin + mail.bytes > bytes) return kPara;
    std::memcpy(static_cast<char*>(data) + begin, mail.data, mail.bytes);
    begin += mail.bytes;
    mail.full.store(0);
  }
  return kSuccess;
}

}  // extern "C"
