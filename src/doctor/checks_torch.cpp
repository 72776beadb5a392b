// SPDX-License-Identifier: Apache-2.0
// Python, libtorch, and the BLAS under it.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "doctor/checks.h"
#include "doctor/elf.h"
#include "doctor/libraries.h"
#include "doctor/versions.h"

namespace apus {

namespace {
using State = Check::State;

constexpr const char* kAsk =
    "import sys,json,importlib.util as u,importlib.metadata as m\n"
    "def of(n):\n"
    "  try: v=m.version(n.replace('_','-'))\n"
    "  except Exception: v=''\n"
    "  try: s=u.find_spec(n)\n"
    "  except Exception: s=None\n"
    "  return [v, (list(s.submodule_search_locations or [''])[0]) if s else '']\n"
    "print(json.dumps({'version':sys.version.split()[0],'torch':of('torch'),'torch_npu':of('torch_npu')}))\n";

// `name = 'value'` in a version.py.
std::string assigned(const std::string& text, const std::string& name) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name) || line.find('=') == std::string::npos) continue;
    const size_t open = line.find_first_of("'\"", line.find('='));
    if (open == std::string::npos) return "";
    return line.substr(open + 1, line.find(line[open], open + 1) - open - 1);
  }
  return "";
}

Check python_check(const PythonFacts& python) {
  if (python.version.empty())
    return {"Python", State::Skipped, "no python3 on PATH", "", "Apus needs none, except for pip's torch_npu"};
  Check c{"Python", State::Ok, str(python.version, " (", python.python, ")"), "", ""};
  const auto range = python.torch.empty() ? std::nullopt : python_for_torch(python.torch);
  if (!range) return c;
  const auto version = Version::parse(python.version), least = Version::parse(range->least),
             most = Version::parse(range->most);
  if (!version || *version < *least || (*version > *most && !version->begins_with(*most))) {
    c.state = State::Warn, c.wanted = str(range->least, " to ", range->most, " for torch ", python.torch);
    c.hint = str("wheels of torch ", python.torch, " exist for those only: make an environment with such a Python");
  }
  return c;
}

Check pip_torch_check(const PythonFacts& python) {
  if (python.torch_folder.empty()) return {"pip's torch", State::Skipped, "none", "", ""};
  const std::string kind = python.torch_cuda.empty() ? "CPU build" : "CUDA " + python.torch_cuda;
  return {"pip's torch", State::Ok,
          str(python.torch.empty() ? "unknown version" : python.torch, ", ", kind, " (", python.torch_folder, ")"), "",
          ""};
}

// libapus.so, beside the program or in the lib folder of an installation.
Host::Path module_of(const Host& host) {
  const Host::Path folder = host.program.parent_path();
  for (const Host::Path& path :
       {folder / "libapus.so", folder.parent_path() / "lib/libapus.so", folder.parent_path() / "lib/apus/libapus.so"})
    if (host.exists(path)) return path;
  return {};
}

struct Libtorch {
  Host::Path module, core;        // libapus.so; the libtorch_cpu that it would load
  std::vector<std::string> lost;  // libraries it needs that nothing offers
  std::string why_not;
};

Libtorch libtorch_of(const Host& host) {
  Libtorch found{module_of(host), {}, {}, ""};
  if (found.module.empty()) {
    found.why_not = str("libapus.so is not beside ", host.program.string());
    return found;
  }
  const LibraryFile file = read_library(host.real(found.module));
  if (!file.elf) {
    found.why_not = str(found.module.string(), ": ", file.why_not);
    return found;
  }
  for (const auto& name : file.elf->needed()) {
    const auto places = find_library(host, name, file.elf->runpath());
    if (places.empty())
      found.lost.push_back(name);
    else if (name.starts_with("libtorch_cpu.so"))
      found.core = places.front();
  }
  return found;
}

// Of pip's layout by version.py, of a distribution's by the library's own name (libtorch_cpu.so.1.13).
std::string version_of(const Host& host, const Host::Path& core) {
  const Host::Path real = host.resolved(core);
  if (const auto text = host.text(real.parent_path().parent_path() / "version.py"))
    return assigned(*text, "__version__");
  if (const auto text = host.text(real.parent_path().parent_path() / "build-version"))
    return text->substr(0, text->find('\n'));
  const LibraryFile file = read_library(host.real(core));
  const std::string name = file.elf ? file.elf->soname() : "";
  const size_t so = name.find(".so.");
  return so == std::string::npos ? "unknown version" : name.substr(so + 4);
}

Check libtorch_check(const Host& host, const Libtorch& torch) {
  Check c{"libtorch", State::Ok, "", "", ""};
  if (torch.module.empty() && host.root != "/")
    return {c.what, State::Skipped, "Apus is not installed below " + host.root.string(), "", ""};
  if (torch.core.empty() || !torch.lost.empty()) {
    c.state = State::Fail;
    c.found = !torch.why_not.empty()
                  ? torch.why_not
                  : str(torch.module.string(), " needs ", torch.lost.empty() ? "libtorch_cpu" : torch.lost[0],
                        ", and no folder has it");
    c.wanted = "libapus.so and the libtorch it was built with";
    c.hint = torch.why_not.empty()
                 ? "was torch updated or moved? build again (cmake --preset release && cmake --build build), or put "
                   "its lib folder into LD_LIBRARY_PATH"
                 : "build it: cmake --preset release && cmake --build build (without -DAPUS_HOST_ONLY=ON)";
    return c;
  }
  const bool gpu = host.exists(torch.core.parent_path() / "libtorch_cuda.so");
  c.found = str(version_of(host, torch.core), ", ", gpu ? "CUDA" : "CPU", " build (",
                host.resolved(torch.core).string(), ")");
  return c;
}

// torch_npu's library speaks of strings in the ABI it was built with: 1, 0, or nothing when it has none.
std::optional<bool> string_abi(const Elf& elf) {
  if (elf.mentions_one_with("__cxx11")) return true;
  if (elf.mentions_one_with("RKSs")) return false;  // const std::string& as it was before
  return std::nullopt;
}

Check abi_check(const Host& host, const Libtorch& torch, const PythonFacts& python) {
  Check c{"C++ ABI of libtorch", State::Skipped, "libc10 not found", "", ""};
  std::optional<bool> fresh;
  for (const auto& path : find_library(host, "libc10.so", torch.core.parent_path().string())) {
    const LibraryFile file = read_library(host.real(path));
    if (!file.elf) continue;
    fresh = file.elf->defines_one_with("__cxx11");
    c.state = State::Ok;
    c.found = *fresh ? "new (_GLIBCXX_USE_CXX11_ABI=1)" : "old (_GLIBCXX_USE_CXX11_ABI=0)";
    break;
  }
  const std::string beside = python.torch_npu_folder.empty() ? "" : python.torch_npu_folder + "/lib";
  for (const auto& path : find_library(host, "libtorch_npu.so", beside)) {
    const LibraryFile file = read_library(host.real(path));
    const auto other = file.elf ? string_abi(*file.elf) : std::nullopt;
    if (!fresh || !other || *other == *fresh) continue;
    c.state = State::Fail;
    c.found += str("; ", host.resolved(path).string(), " has the ", *other ? "new" : "old", " one");
    c.wanted = "one ABI", c.hint = str("build libtorch_npu with _GLIBCXX_USE_CXX11_ABI=", *fresh ? 1 : 0,
                                       ", or take the wheel made for this torch: loading it ends with an undefined "
                                       "symbol otherwise");
  }
  return c;
}

std::string blas_of(const std::string& path) {
  for (const auto& [part, name] : std::vector<std::pair<const char*, const char*>>{
           {"openblas", "OpenBLAS"}, {"mkl", "MKL"}, {"blis", "BLIS"}, {"atlas", "ATLAS"}})
    if (path.find(part) != std::string::npos) return name;
  return "";
}

Check blas_check(const Host& host, const Libtorch& torch) {
  const LibraryFile core = torch.core.empty() ? LibraryFile{} : read_library(host.real(torch.core));
  Check c{"BLAS under libtorch", State::Skipped, "libtorch not found", "OpenBLAS, MKL or BLIS", ""};
  if (!core.elf) return c;
  c.state = State::Ok, c.found = "inside libtorch";
  for (const auto& name : core.elf->needed()) {
    const bool plain = name.starts_with("libblas.so");
    if (!plain && blas_of(name).empty()) continue;
    const auto places = find_library(host, name, core.elf->runpath());
    const std::string path = places.empty() ? "" : host.resolved(places.front()).string();
    c.found = str(blas_of(path.empty() ? name : path), " (", path.empty() ? name : path, ")");
    if (plain && blas_of(path).empty()) {
      c.state = State::Warn, c.found = str("reference BLAS (", path.empty() ? name : path, ")");
      c.hint =
          "f32 matrix products run 30 to 50 times slower than they could: apt-get install libopenblas0-pthread (dnf "
          "install openblas), "
          "and see that update-alternatives chooses it for libblas.so.3";
    }
    break;
  }
  return c;
}
}  // namespace

PythonFacts python_facts(const Host& host) {
  PythonFacts facts;
  for (const char* name : {"python3", "python"}) {
    const auto ran = host.run(name, {"-c", kAsk});
    if (!ran || ran->code != 0) continue;
    try {
      const Json answer = parse_json(ran->output, "python");
      facts.python = host.find_program(name).string(), facts.version = answer.at("version");
      facts.torch = answer.at("torch").at(0), facts.torch_folder = answer.at("torch").at(1);
      facts.torch_npu = answer.at("torch_npu").at(0), facts.torch_npu_folder = answer.at("torch_npu").at(1);
    } catch (const std::exception&) {
      continue;  // some other program of that name
    }
    const std::string text = host.text(Host::Path(facts.torch_folder) / "version.py").value_or("");
    if (facts.torch.empty()) facts.torch = assigned(text, "__version__");
    facts.torch_cuda = assigned(text, "cuda");
    return facts;
  }
  return facts;
}

std::vector<Check> torch_checks(const Host& host, const PythonFacts& python) {
  const Libtorch torch = libtorch_of(host);
  return {libtorch_check(host, torch), abi_check(host, torch, python), blas_check(host, torch), python_check(python),
          pip_torch_check(python)};
}

}  // namespace apus
