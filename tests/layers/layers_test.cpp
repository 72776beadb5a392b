// SPDX-License-Identifier: Apache-2.0
// The architecture's rules, read from the sources: who may include whom, where the tensor library may appear, and where
// a vendor may be named. docs/architecture.md explains them.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "tests/paths.h"

namespace apus {
namespace {
namespace fs = std::filesystem;

using Sources = std::map<std::string, std::string>;  // path below src/ -> text

// From the bottom to the top: a folder may include itself and those before it.
const std::vector<std::string> kOrder = {
    "base",        "text",  "hub",   "guide",  "media",  "gguf",       "tensor",   "quant",  "device", "ops",
    "devices",     "dist",  "nn",    "data",   "models", "checkpoint", "parallel", "engine", "train",  "reward",
    "environment", "algos", "serve", "doctor", "plan",   "abilities",  "cli",      "run"};

std::string folder_of(const std::string& path) { return path.substr(0, path.find('/')); }

int level_of(const std::string& folder) {
  const auto found = std::find(kOrder.begin(), kOrder.end(), folder);
  return found == kOrder.end() ? -1 : static_cast<int>(found - kOrder.begin());
}

struct Include {
  bool own;  // "..." rather than <...>
  std::string path;
};

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex pattern(R"re((^|\n)[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[>"])re");
  std::vector<Include> includes;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
    includes.push_back({(*it)[2] == "\"", (*it)[3]});
  return includes;
}

// Comments, string literals and character literals become spaces: what remains is what the compiler acts on. The string
// literals are gathered.
std::string code_only(const std::string& text, std::vector<std::string>* literals = nullptr) {
  static const std::regex raw(R"re(R"([^()\\ ]{0,16})\()re");
  std::string out;
  for (size_t i = 0; i < text.size();) {
    std::smatch match;
    size_t end = i + 1;
    if (text.compare(i, 2, "//") == 0) {
      end = text.find('\n', i);
    } else if (text.compare(i, 2, "/*") == 0) {
      end = text.find("*/", i + 2) + 2;
    } else if (text.compare(i, 2, "R\"") == 0 &&
               std::regex_search(text.begin() + static_cast<long>(i), text.end(), match, raw,
                                 std::regex_constants::match_continuous)) {
      const std::string close = ")" + match[1].str() + "\"";
      end = text.find(close, i) + close.size();
    } else if (text[i] == '"' ||
               (text[i] == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(text[i - 1]))))) {
      while (end < text.size() && text[end] != text[i] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      if (literals && text[i] == '"') literals->push_back(text.substr(i + 1, std::min(end, text.size()) - i - 1));
      ++end;
    } else {
      out += text[i++];
      continue;
    }
    i = std::min(end, text.size());
    out += ' ';
  }
  return out;
}

// "kCudaStream_t" -> k, Cuda, Stream, t. A run of capitals is one word: CUDAGuard -> CUDA, Guard.
std::vector<std::string> words_of(const std::string& code) {
  static const std::regex pattern("[A-Z]+(?![a-z])|[A-Z]?[a-z]+");
  std::vector<std::string> words;
  for (std::sregex_iterator it(code.begin(), code.end(), pattern), end; it != end; ++it) {
    words.push_back(it->str());
    for (char& c : words.back()) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words;
}

bool names_vendor(const std::string& word) {
  static const std::regex pattern("(cuda|nccl|hccl|npu)[a-z0-9]*|ascend(c|cl)?|acl(rt|nn|op|mdl|prof)?");
  return std::regex_match(word, pattern);
}

// "npu", "CUDA_VISIBLE_DEVICES": a name to decide by; no sentence for people, no flag of another program.
bool decides(const std::string& literal) {
  static const std::regex variable("[A-Z][A-Z0-9_]*");
  return names_vendor(literal) || std::regex_match(literal, variable);
}

bool tensor_header(const std::string& path) {
  return path.starts_with("ATen/") || path.starts_with("c10/") || path.starts_with("torch/");
}

// The folders and single files that cmake/Layers.cmake builds without a tensor library.
struct HostRule {
  std::set<std::string> folders, files;
  bool holds(const std::string& path) const {
    for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1))
      if (folders.count(path.substr(0, end))) return true;
    return files.count(path) > 0;
  }
};

std::set<std::string> cmake_list(const std::string& text, const std::string& name) {
  std::smatch match;
  std::set<std::string> items;
  if (!std::regex_search(text, match, std::regex("set\\(" + name + "\\s+([^)]*)\\)"))) return items;
  std::istringstream words(match[1]);
  for (std::string word; words >> word;) items.insert(word);
  return items;
}

// A file without a tensor library must not reach one through our own headers either.
std::string path_to_tensor(const Sources& sources, const std::string& file, std::set<std::string>& seen) {
  const auto found = sources.find(file);
  if (found == sources.end() || !seen.insert(file).second) return "";
  for (const auto& include : includes_of(found->second)) {
    if (!include.own && tensor_header(include.path)) return file + " includes <" + include.path + ">";
    if (!include.own) continue;
    const std::string deeper = path_to_tensor(sources, include.path, seen);
    if (!deeper.empty()) return file + " -> " + deeper;
  }
  return "";
}

std::vector<std::string> violations(const Sources& sources, const HostRule& host) {
  std::vector<std::string> found;
  for (const auto& [path, text] : sources) {
    const std::string folder = folder_of(path);
    const int level = level_of(folder);
    if (level < 0) found.push_back(path + ": the folder " + folder + " is not in the table of layers");
    for (const auto& include : includes_of(text)) {
      if (!include.own) continue;
      const int other = level_of(folder_of(include.path));
      if (other < 0) found.push_back(path + ": \"" + include.path + "\" is not written from src/");
      if (other > level) found.push_back(path + ": includes upward: " + include.path);
      // A plan asks what the machine is; it judges nothing, and the doctor plans nothing.
      if (folder == "plan" && folder_of(include.path) == "doctor" && include.path != "doctor/host.h" &&
          include.path != "doctor/inventory.h") {
        found.push_back(path +
                        ": a plan looks at the machine by doctor/host.h and doctor/inventory.h alone: " + include.path);
      }
      if (folder == "serve" && (folder_of(include.path) == "train" || folder_of(include.path) == "algos")) {
        found.push_back(path + ": serving includes training: " + include.path);
      }
    }
    if (host.holds(path)) {
      std::set<std::string> seen;
      const std::string way = path_to_tensor(sources, path, seen);
      if (!way.empty()) found.push_back(path + ": must not know the tensor library: " + way);
    }
    if (folder == "devices" || folder == "doctor" || folder == "plan") continue;
    std::vector<std::string> literals;
    std::string code = code_only(text, &literals);
    for (const auto& include : includes_of(text)) code += " " + include.path;
    for (const auto& literal : literals)
      if (decides(literal)) code += " " + literal;
    for (const auto& word : words_of(code)) {
      if (names_vendor(word)) {
        found.push_back(path + ": names a vendor: " + word);
        break;
      }
    }
  }
  return found;
}

Sources read_sources(const fs::path& root) {
  Sources sources;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const auto kind = entry.path().extension();
    if (entry.is_regular_file() && (kind == ".h" || kind == ".cpp" || kind == ".cu")) {
      sources[fs::relative(entry.path(), root).generic_string()] = read_file(entry.path());
    }
  }
  return sources;
}

HostRule read_rule() {
  const std::string text = read_file(test::source_dir() / "cmake/Layers.cmake");
  return {cmake_list(text, "APUS_HOST_FOLDERS"), cmake_list(text, "APUS_HOST_FILES")};
}

TEST(Layers, TheSourcesKeepTheRules) {
  const Sources sources = read_sources(test::source_dir() / "src");
  const HostRule rule = read_rule();
  ASSERT_GT(sources.size(), 30u);
  ASSERT_TRUE(rule.folders.count("base") && rule.folders.count("engine/schedule"));
  for (const auto& violation : violations(sources, rule)) ADD_FAILURE() << violation;
}

// Which folders each stands on, the topmost first. What another one of them stands on already is left out, so that the
// arrows are as few as they can be; every folder stands on base.
std::string picture(const Sources& sources) {
  std::map<std::string, std::set<std::string>> stands_on;
  for (const auto& [path, text] : sources)
    for (const auto& include : includes_of(text))
      if (include.own && folder_of(include.path) != folder_of(path))
        stands_on[folder_of(path)].insert(folder_of(include.path));
  const std::function<bool(const std::string&, const std::string&)> reaches = [&](const std::string& from,
                                                                                  const std::string& to) {
    const auto& below = stands_on[from];
    return below.count(to) > 0 ||
           std::any_of(below.begin(), below.end(), [&](const std::string& next) { return reaches(next, to); });
  };
  std::string out;
  for (auto folder = kOrder.rbegin(); folder != kOrder.rend(); ++folder) {
    const std::set<std::string> below = stands_on[*folder];
    std::string line = *folder + std::string(13 - folder->size(), ' ') + "->";
    for (const std::string& one : below) {
      const bool by_another = std::any_of(
          below.begin(), below.end(), [&](const std::string& other) { return other != one && reaches(other, one); });
      if (!by_another) line += " " + one;
    }
    if (!below.empty()) out += line + "\n";
  }
  return out;
}

TEST(Layers, ThePageHoldsThePicture) {
  const std::string drawn = picture(read_sources(test::source_dir() / "src"));
  EXPECT_NE(read_file(test::source_dir() / "docs/architecture.md").find(drawn), std::string::npos)
      << "docs/architecture.md, under \"The house\", should hold:\n"
      << drawn;
  EXPECT_EQ(
      picture({{"cli/a.h", "#include \"text/b.h\"\n#include \"base/c.h\"\n"}, {"text/b.h", "#include \"base/c.h\"\n"}}),
      "cli          -> text\ntext         -> base\n");
}

// What differs from algorithm to algorithm is said where it is described, and a rule reads that.
TEST(Layers, NoAlgorithmIsNamedElsewhere) {
  static const std::regex named("(^|[^A-Za-z0-9_])(dpo|kto|orpo|cpo|simpo|grpo|ppo|gkd)([^A-Za-z0-9_]|$)");
  for (const auto& [path, text] : read_sources(test::source_dir() / "src")) {
    std::smatch match;
    if (folder_of(path) != "algos" && std::regex_search(text, match, named))
      ADD_FAILURE() << path << " names the algorithm " << match[2];
  }
}

// Two classes of one name in one namespace: the linker takes the functions of one of them for both, and tells nobody.
std::vector<std::string> names_taken_twice(const Sources& sources) {
  static const std::regex pattern(R"re((^|\n)(namespace [^\n{]*|(struct|class|enum class) ([\w:]+)[^\n;]*)\{)re");
  std::map<std::string, std::string> taken;
  std::vector<std::string> found;
  for (const auto& [path, text] : sources) {
    if (!path.ends_with(".h")) continue;
    std::string space;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
      if (!(*it)[4].matched) space = (*it)[2];
      // A namespace without a name belongs to the file that includes the header.
      if (!(*it)[4].matched || space == "namespace ") continue;
      const auto [first, fresh] = taken.emplace(space + (*it)[4].str(), path);
      if (!fresh) found.push_back(path + ": " + (*it)[4].str() + " is also in " + first->second);
    }
  }
  return found;
}

TEST(Layers, ClassesHaveNamesOfTheirOwn) {
  for (const auto& twice : names_taken_twice(read_sources(test::source_dir() / "src"))) ADD_FAILURE() << twice;
  const auto found = [](const std::string& a, const std::string& b) {
    return names_taken_twice({{"a.h", a}, {"b.h", b}}).size();
  };
  EXPECT_EQ(found("namespace apus {\nclass A {};\n}", "namespace apus {\nstruct A : B {\n};\n}"), 1u);
  EXPECT_EQ(found("namespace apus {\nclass A {};\n}", "namespace apus::x {\nclass A {};\n}"), 0u);
  EXPECT_EQ(found("namespace apus {\nclass A;\n}", "namespace apus {\nclass A {};\n}"), 0u);
  EXPECT_EQ(found("namespace {\nclass A {};\n}", "namespace {\nclass A {};\n}"), 0u);
}

TEST(Layers, FilesAreOfAReadableLength) {
  for (const auto& [path, text] : read_sources(test::source_dir() / "src")) {
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 500) << path << ": split it";
    EXPECT_TRUE(text.starts_with("// SPDX-License-Identifier: Apache-2.0\n")) << path;
  }
}

// require(::fsync(f) == 0, ..., strerror(errno)): g++ evaluates the last argument first, and tells "Success".
std::vector<std::string> errno_before_its_call(const std::string& text) {
  static const std::regex call(R"re((^|[^\w>:])::[a-z]\w*\()re"), told(R"re(errno|reason\()re");
  const std::string code = code_only(text);
  std::vector<std::string> found;
  for (size_t at = 0; (at = code.find("require(", at)) != std::string::npos; ++at) {
    size_t end = at + 8, comma = std::string::npos;
    for (int depth = 1; depth > 0 && end < code.size(); ++end) {
      if (code[end] == ',' && depth == 1) comma = std::min(comma, end);
      depth += (code[end] == '(') - (code[end] == ')');
    }
    if (comma == std::string::npos) continue;
    const std::string condition = code.substr(at, comma - at), rest = code.substr(comma, end - comma);
    if (std::regex_search(condition, call) && std::regex_search(rest, told)) found.push_back(condition);
  }
  return found;
}

TEST(Layers, ErrnoIsReadAfterTheCall) {
  for (const auto& [path, text] : read_sources(test::source_dir() / "src"))
    for (const auto& early : errno_before_its_call(text)) ADD_FAILURE() << path << ": " << early;
  EXPECT_EQ(errno_before_its_call("require(f(::fsync(d), 1) == 0, Fault::Io, std::strerror(errno));").size(), 1u);
  EXPECT_EQ(errno_before_its_call("require(::close(d) == 0, Fault::Io, path, reason());").size(), 1u);
  EXPECT_EQ(errno_before_its_call("require(done, Fault::Io, reason()); require(::access(p) == 0, Fault::Io);").size(),
            0u);
  EXPECT_EQ(errno_before_its_call("require(std::min(a, b) > 0, Fault::Io, reason());").size(), 0u);
}

TEST(Layers, EveryKindOfViolationIsCaught) {
  const HostRule rule{{"base", "text", "cli", "engine/schedule"}, {"models/config.cpp"}};
  const auto caught = [&](const std::string& path, const std::string& text) {
    return violations({{path, text},
                       {"nn/module.h", "#include <ATen/core/Tensor.h>\n"},
                       {"engine/engine.h", "#include \"nn/module.h\"\n"}},
                      rule);
  };
  EXPECT_EQ(caught("base/a.cpp", "#include \"text/b.h\"\n").size(), 1u) << "upward";
  EXPECT_EQ(caught("text/a.cpp", "#include \"base/b.h\"\n").size(), 0u) << "downward";
  EXPECT_EQ(caught("ops/a.cpp", "#include \"devices/cpu/b.h\"\n").size(), 1u) << "an op includes a device";
  EXPECT_EQ(caught("base/a.cpp", "  #  include <torch/library.h>\n").size(), 1u)
      << "tensor library in a torch-free folder";
  EXPECT_EQ(caught("models/config.cpp", "#include <c10/core/Device.h>\n").size(), 1u)
      << "tensor library in a torch-free file";
  EXPECT_EQ(caught("engine/schedule/scheduler.cpp", "#include \"engine/engine.h\"\n").size(), 1u)
      << "the same through two headers, from a torch-free room";
  EXPECT_EQ(caught("engine/engine.cpp", "#include \"engine/engine.h\"\n").size(), 0u) << "others may";
  EXPECT_EQ(caught("models/model.cpp", "#include <ATen/core/Tensor.h>\n").size(), 0u) << "beside a torch-free file";
  EXPECT_EQ(caught("serve/a.cpp", "#include \"train/trainer.h\"\n").size(), 1u) << "serving never includes training";
  EXPECT_EQ(caught("doctor/a.cpp", "#include \"plan/plan.h\"\n").size(), 1u) << "the doctor does not plan";
  EXPECT_EQ(caught("plan/a.cpp", "#include \"doctor/inventory.h\"\n").size(), 0u) << "a plan asks for the devices";
  EXPECT_EQ(caught("plan/a.cpp", "#include \"doctor/checks.h\"\n").size(), 1u) << "a plan does not judge";
  EXPECT_EQ(caught("misc/a.cpp", "").size(), 1u) << "a folder nobody knows";
  EXPECT_EQ(caught("base/a.cpp", "#include \"b.h\"\n").size(), 1u) << "includes are written from src/";
  for (const char* code :
       {"auto d = at::kCUDA;", "cudaMalloc(&p, n);", "int npu_count;", "torch::cuda::is_available();",
        "aclrtSetDevice(0);", "ncclComm_t c;", "class HcclComm {};", "#include <cuda_runtime.h>\n",
        "bool ascend = true;", "#ifdef USE_NPU\n", "if (kind == \"npu\") {}", "getenv(\"CUDA_VISIBLE_DEVICES\");"}) {
    EXPECT_EQ(caught("nn/a.cpp", code).size(), 1u) << code;
    EXPECT_EQ(caught("devices/x/a.cpp", code).size(), 0u) << code;
  }
  for (const char* fine :
       {"// as on CUDA\n", "/* npu\n hccl */ int a;", "say(\"--device npu\");", "auto s = R\"(cuda)\";",
        "int input, oracle, miracle, ascending;", "char c = '\"'; int x; // cuda \" \n",
        "int a = 1'000'000; say(\"the npu\"); v(\"enable_npu_patch\");"}) {
    EXPECT_EQ(caught("nn/a.cpp", fine).size(), 0u) << fine;
  }
}

}  // namespace
}  // namespace apus
