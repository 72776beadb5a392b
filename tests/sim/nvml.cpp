// SPDX-License-Identifier: Apache-2.0
// The GPUs' library of a node without GPUs: four, the first two joined by four NVLinks, the others behind a switch.
#include <cstdio>
#include <cstring>

extern "C" {
struct SimPci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
struct SimUse {
  unsigned gpu, memory;
};
struct SimMemory {
  unsigned long long total, free, used;
};
using Gpu = char*;  // device i is the address i + 1

static unsigned index_of(Gpu d) { return static_cast<unsigned>(reinterpret_cast<unsigned long>(d) - 1); }
static void name_bus(unsigned i, SimPci* p) { std::snprintf(p->bus_id, sizeof p->bus_id, "00000000:%02X:00.0", i + 1); }

int nvmlInit_v2() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return std::snprintf(text, size, "570.0.1"), 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = 4, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Gpu* d) {
  *d = reinterpret_cast<Gpu>(static_cast<unsigned long>(i) + 1);
  return i < 4 ? 0 : 2;
}
int nvmlDeviceGetName(Gpu, char* text, unsigned size) { return std::snprintf(text, size, "NVIDIA H200"), 0; }
int nvmlDeviceGetPowerUsage(Gpu d, unsigned* mw) { return *mw = 76000 + 1000 * index_of(d), 0; }
int nvmlDeviceGetTemperature(Gpu, int, unsigned* c) { return *c = 31, 0; }
int nvmlDeviceGetUtilizationRates(Gpu, SimUse* use) { return use->gpu = 12, use->memory = 3, 0; }
int nvmlDeviceGetMemoryInfo(Gpu, SimMemory* m) {
  return m->total = 141ull << 30, m->used = 1ull << 30, m->free = m->total - m->used, 0;
}
int nvmlDeviceGetPciInfo_v3(Gpu d, SimPci* p) { return std::memset(p, 0, sizeof *p), name_bus(index_of(d), p), 0; }
int nvmlDeviceGetNvLinkState(Gpu d, unsigned link, unsigned* active) {
  return *active = index_of(d) < 2 && link < 4, link < 18 ? 0 : 2;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Gpu d, unsigned, SimPci* p) {
  return std::memset(p, 0, sizeof *p), name_bus(1 - index_of(d), p), 0;
}
int nvmlDeviceGetTopologyCommonAncestor(Gpu a, Gpu b, unsigned* level) {
  return *level = index_of(a) / 2 == index_of(b) / 2 ? 20 : 50, 0;
}
int nvmlDeviceGetCpuAffinity(Gpu d, unsigned words, unsigned long* cores) {
  std::memset(cores, 0, words * sizeof *cores);
  return cores[0] = index_of(d) < 2 ? 0xffful : 0xff000ful, 0;
}
}
