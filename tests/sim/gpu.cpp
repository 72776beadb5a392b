// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/gpu.h"

#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if defined(__SANITIZE_THREAD__)
#define APUS_SEES_RACES
#elif defined(__SANITIZE_ADDRESS__)
#define APUS_SEES_ADDRESSES
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define APUS_SEES_RACES
#elif __has_feature(address_sanitizer)
#define APUS_SEES_ADDRESSES
#endif
#endif
#ifdef APUS_SEES_RACES
#include <sanitizer/tsan_interface.h>
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
#endif
#ifdef APUS_SEES_ADDRESSES
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace apus::kernels {
gpu::Extent gridDim, blockDim, blockIdx, threadIdx;
}

namespace apus::gpu {
namespace {

constexpr unsigned kLanes = 32, kMostThreads = 1024;
constexpr size_t kStack = 256 << 10, kGuard = 4096, kMostShown = 32;  // bytes

#ifdef APUS_SEES_RACES
void order_before(void* lock) { __tsan_release(lock); }
void order_after(void* lock) { __tsan_acquire(lock); }
// What the simulator does between threads is no race of theirs.
struct Unseen {
  Unseen() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__); }
  ~Unseen() { AnnotateIgnoreWritesEnd(__FILE__, __LINE__), AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};
#else
void order_before(void*) {}
void order_after(void*) {}
struct Unseen {
  ~Unseen() {}
};
#endif

// Where threads of a warp, or of a block, wait for one another.
struct Meeting {
  unsigned members = 0, arrived = 0, round = 0;
  Site site{};  // of who came first
  char lock[2]{};
};
struct Warp {
  Meeting meeting;
  alignas(16) char shown[2][kLanes * kMostShown];  // this round's, and the last one's for who is still reading
};

enum class State { Ready, Waiting, Ended };
struct Thread {
  ucontext_t context;
  char* stack = nullptr;
  State state = State::Ended;
  Extent index;
  Site site{};
  void* in_races = nullptr;  // the sanitizer's names for it
  void* in_addresses = nullptr;
  size_t stack_size = kStack;
};

struct Machine {
  Thread host;  // who launches
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Meeting block;
  unsigned count = 0;  // threads of the running block
  unsigned running = 0;
  bool descending = false;  // every second block begins with its last thread
  const std::function<void()>* kernel = nullptr;
  std::string problem;
  char begin = 0, end = 0;  // locks
};
Machine machine;

// From one thread's stack to another's.
__attribute__((no_sanitize("thread"))) void go(Thread& from, Thread& to) {
#ifdef APUS_SEES_ADDRESSES
  __sanitizer_start_switch_fiber(from.state == State::Ended ? nullptr : &from.in_addresses, to.stack, to.stack_size);
#endif
#ifdef APUS_SEES_RACES
  __tsan_switch_to_fiber(to.in_races, __tsan_switch_to_fiber_no_sync);
#endif
  swapcontext(&from.context, &to.context);
#ifdef APUS_SEES_ADDRESSES
  __sanitizer_finish_switch_fiber(from.in_addresses, nullptr, nullptr);
#endif
}

Thread& chosen(unsigned next) {
  machine.running = next;
  kernels::threadIdx = machine.threads[next].index;
  return machine.threads[next];
}

unsigned warp_size(unsigned first) { return std::min(kLanes, machine.count - first); }

// A thread that can go on, of this warp if there is one; `count`: there is none.
unsigned next_ready() {
  const unsigned own = machine.running, first = own / kLanes * kLanes;
  const auto among = [&](unsigned begin, unsigned size) {
    for (unsigned i = 1; i <= size; ++i) {
      const unsigned at = begin + (own - begin + (machine.descending ? size - i : i)) % size;
      if (machine.threads[at].state == State::Ready) return at;
    }
    return machine.count;
  };
  const unsigned near = among(first, warp_size(first));
  return near < machine.count ? near : among(0, machine.count);
}

std::string text(Site site) {
  const std::string file = site.file;
  return std::string(site.call) + " (" + file.substr(file.rfind('/') + 1) + ":" + std::to_string(site.line) + ")";
}

std::string text(const Extent& i) {
  return "thread (" + std::to_string(i.x) + ", " + std::to_string(i.y) + ", " + std::to_string(i.z) + ")";
}

// For good: what is to be destroyed later on this stack never is.
void stop(const char* what, Site at, Site other = {}) {
  machine.problem = what;
  machine.problem += text(at);
  if (other.call) machine.problem += " and " + text(other);
  go(machine.threads[machine.running], machine.host);
}

// Of threads of which none can go on. Empty: all have ended.
std::string who_waits() {
  const Thread *first = nullptr, *other = nullptr;
  unsigned ended = 0;
  for (unsigned i = 0; i < machine.count; ++i) {
    const Thread& t = machine.threads[i];
    if (t.state == State::Ended)
      ++ended;
    else if (!first)
      first = &t;
    else if (t.site.line != first->site.line)
      other = &t;
  }
  if (!first) return "";
  std::string out = text(first->index) + " waits for ever at " + text(first->site);
  if (other) out += ", " + text(other->index) + " at " + text(other->site);
  return ended ? out + "; " + std::to_string(ended) + " threads have ended" : out;
}

// Who goes on when the running thread cannot: at last who launched the kernel.
Thread& successor() {
  const unsigned next = next_ready();
  if (next < machine.count) return chosen(next);
  machine.problem = who_waits();
  return machine.host;
}

// Returns when all members have come; the round that was theirs.
unsigned meet(Meeting& meeting, unsigned first, Site site) {
  Thread& own = machine.threads[machine.running];
  if (meeting.arrived == 0) meeting.site = site;
  if (meeting.site.line != site.line || strcmp(meeting.site.call, site.call) != 0)
    stop("threads meet at different places: ", meeting.site, site);
  const unsigned round = meeting.round;
  own.state = State::Waiting, own.site = site;
  if (++meeting.arrived < meeting.members) {
    go(own, successor());
    return round;
  }
  meeting.arrived = 0, ++meeting.round;
  for (unsigned i = first; i < first + meeting.members; ++i) machine.threads[i].state = State::Ready;
  return round;
}

Warp& own_warp(unsigned mask, Site site) {
  Warp& warp = machine.warps[machine.running / kLanes];
  if (mask != ~0u || warp.meeting.members != kLanes)
    stop("only whole warps are simulated, of lanes that are all there: ", site);
  return warp;
}

void thread_main() {
#ifdef APUS_SEES_ADDRESSES
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  order_after(&machine.begin);
  (*machine.kernel)();
  order_before(&machine.end);
  Thread *own = nullptr, *next = nullptr;
  {
    const Unseen unseen;
    own = &machine.threads[machine.running];
    own->state = State::Ended;
    next = &successor();
  }
  go(*own, *next);
}

struct Piece {
  char* at;
  size_t size;
};

// What kernels share: the writable variables inside functions of apus::kernels, as the program's own table of symbols
// has them.
std::vector<Piece> find_shared() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto read = [&](auto* to, size_t count, size_t offset) {
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(count * sizeof *to));
    if (!file) throw std::runtime_error("the simulated GPU cannot read the program's symbols");
  };
  ElfW(Ehdr) header;
  read(&header, 1, 0);
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  read(sections.data(), sections.size(), header.e_shoff);
  ElfW(Addr) base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        *static_cast<ElfW(Addr)*>(to) = info->dlpi_addr;
        return 1;  // the program itself is the first
      },
      &base);
  std::vector<Piece> shared;
  bool named = false;
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    named = true;
    std::vector<ElfW(Sym)> symbols(section.sh_size / sizeof(ElfW(Sym)));
    read(symbols.data(), symbols.size(), section.sh_offset);
    const auto& strings = sections[section.sh_link];
    std::vector<char> names(strings.sh_size);
    read(names.data(), names.size(), strings.sh_offset);
    for (const auto& symbol : symbols) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= sections.size()) continue;
      if (!(sections[symbol.st_shndx].sh_flags & SHF_WRITE)) continue;
      if (std::strncmp(&names[symbol.st_name], "_ZZN4apus7kernels", 17) != 0) continue;
      shared.push_back({reinterpret_cast<char*>(base + symbol.st_value), symbol.st_size});
    }
  }
  if (!named) throw std::runtime_error("the simulated GPU cannot tell where shared memory is: the program is stripped");
  return shared;
}

// A pattern that is a NaN in every type; not by memset, as sanitizers put gaps between variables.
__attribute__((noinline, no_sanitize("address"))) void poison_shared() {
  static const std::vector<Piece> shared = find_shared();
  for (const Piece& piece : shared)
    for (size_t i = 0; i + 4 <= piece.size; i += 4) *reinterpret_cast<volatile uint32_t*>(piece.at + i) = 0xffffffffu;
}

void prepare(Thread& thread) {
  if (!thread.stack) {
    void* const memory =
        mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for a simulated thread's stack");
    mprotect(memory, kGuard, PROT_NONE);
    thread.stack = static_cast<char*>(memory) + kGuard;
  }
#ifdef APUS_SEES_ADDRESSES
  __asan_unpoison_memory_region(thread.stack, kStack);
#endif
#ifdef APUS_SEES_RACES
  if (!thread.in_races) thread.in_races = __tsan_create_fiber(0);
#endif
  getcontext(&thread.context);
  thread.context.uc_stack = {};
  thread.context.uc_stack.ss_sp = thread.stack;
  thread.context.uc_stack.ss_size = kStack;
  thread.context.uc_link = nullptr;
  makecontext(&thread.context, thread_main, 0);
  thread.context.uc_stack.ss_size = 0;  // the address sanitizer would take all of it for unused
  thread.state = State::Ready;
}

// Threads that were left in the middle of a kernel: what they did comes before what the host does next, and who begins
// anew in their place is another one.
__attribute__((no_sanitize("thread"))) void forget_threads() {
#ifdef APUS_SEES_RACES
  for (Thread& thread : machine.threads) {
    if (!thread.in_races) continue;
    __tsan_switch_to_fiber(thread.in_races, 0);
    __tsan_switch_to_fiber(machine.host.in_races, 0);
    thread.in_races = nullptr;
  }
#endif
}

void run_block(Extent block) {
  {
    const Unseen unseen;
    poison_shared();
    machine.block = {.members = machine.count};
    for (unsigned first = 0; first < machine.count; first += kLanes)
      machine.warps[first / kLanes].meeting = {.members = warp_size(first)};
    for (unsigned i = 0; i < machine.count; ++i) {
      prepare(machine.threads[i]);
      machine.threads[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
    }
  }
  order_before(&machine.begin);
  {
    const Unseen unseen;
    machine.host.state = State::Waiting;
    go(machine.host, chosen(machine.descending ? machine.count - 1 : 0));
  }
  order_after(&machine.end);
}

void learn_of_host() {
  const Unseen unseen;
#ifdef APUS_SEES_RACES
  machine.host.in_races = __tsan_get_current_fiber();
#endif
#ifdef APUS_SEES_ADDRESSES
  pthread_attr_t attributes;
  void* stack = nullptr;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &machine.host.stack_size);
  pthread_attr_destroy(&attributes);
  machine.host.stack = static_cast<char*>(stack);
#endif
}

}  // namespace

#ifdef APUS_SEES_RACES
const bool kSeesRaces = true;
#else
const bool kSeesRaces = false;
#endif

void launch(Extent grid, Extent block, const std::function<void()>& kernel) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z, blocks = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMostThreads || blocks == 0 || grid.y > 65535 || grid.z > 65535 || block.z > 64)
    throw std::runtime_error("no GPU takes a grid of " + std::to_string(blocks) + " blocks of " +
                             std::to_string(threads) + " threads");
  learn_of_host();
  machine.count = static_cast<unsigned>(threads);
  if (machine.threads.size() < threads) machine.threads.resize(threads);
  machine.warps.resize((threads + kLanes - 1) / kLanes);
  machine.kernel = &kernel;
  kernels::gridDim = grid, kernels::blockDim = block;
  for (uint64_t i = 0; i < blocks; ++i) {
    kernels::blockIdx = {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                         static_cast<unsigned>(i / grid.x / grid.y)};
    machine.descending = i % 2 == 1;
    run_block(block);
    if (machine.problem.empty()) continue;
    forget_threads();
    throw std::runtime_error(std::exchange(machine.problem, {}));
  }
}

void sync_block(Site site) {
  char* lock = nullptr;
  {
    const Unseen unseen;
    lock = &machine.block.lock[machine.block.round % 2];
  }
  order_before(lock);
  {
    const Unseen unseen;
    meet(machine.block, 0, site);
  }
  order_after(lock);
}

void sync_warp(unsigned mask, Site site) {
  char* lock = nullptr;
  {
    const Unseen unseen;
    Meeting& meeting = own_warp(mask, site).meeting;
    lock = &meeting.lock[meeting.round % 2];
  }
  order_before(lock);
  {
    const Unseen unseen;
    meet(own_warp(mask, site).meeting, machine.running / kLanes * kLanes, site);
  }
  order_after(lock);
}

const void* exchange(unsigned mask, const void* mine, size_t size, Site site) {
  const Unseen unseen;
  Warp& warp = own_warp(mask, site);
  if (size > kMostShown) stop("too much for a shuffle: ", site);
  char* const all = warp.shown[warp.meeting.round % 2];
  std::memcpy(all + machine.running % kLanes * size, mine, size);
  meet(warp.meeting, machine.running / kLanes * kLanes, site);
  return all;
}

}  // namespace apus::gpu
