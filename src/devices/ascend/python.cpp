// SPDX-License-Identifier: Apache-2.0
#include "devices/ascend/python.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "devices/ascend/libraries.h"

namespace apus::ascend {

namespace {

// One fact a line: name, tab, value.
constexpr const char* kQuestions = R"(
import importlib.util, os, sys, sysconfig
def folder(module):
    spec = importlib.util.find_spec(module)
    return spec.submodule_search_locations[0] if spec and spec.submodule_search_locations else ''
version = '%d.%d' % sys.version_info[:2]
print('base', getattr(sys, '_base_executable', sys.executable), sep='\t')
for place in (sysconfig.get_config_var('LIBDIR') or '', os.path.join(sys.base_prefix, 'lib'), ''):
    for name in (sysconfig.get_config_var('INSTSONAME') or '', 'libpython' + version + '.so.1.0', 'libpython' + version + '.so'):
        if '.so' in name: print('library', os.path.join(place, name), sep='\t')
for entry in sys.path:
    if entry: print('path', entry, sep='\t')
for module in ('torch', 'torch_npu'): print(module, folder(module), sep='\t')
)";

std::string quoted(const std::string& text) {  // for the shell
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The functions of the C interface that do not change between versions.
struct Interpreter {
  void (*initialize)(int signals) = nullptr;
  int (*run)(const char* statements) = nullptr;
  void* (*save_thread)() = nullptr;
  int (*ensure)() = nullptr;
  void (*release)(int state) = nullptr;
};

Interpreter& interpreter() {
  static Interpreter the;
  return the;
}

constexpr const char* kPathVariable = "APUS_PYTHON_PATH";      // in: sys.path
constexpr const char* kAnswerVariable = "APUS_PYTHON_ANSWER";  // out: os.environ writes through to the process
constexpr const char* kErrorVariable = "APUS_PYTHON_ERROR";

std::string indented(const std::string& statements) {
  std::istringstream lines(statements);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += "    " + line + "\n";
  return out;
}

void set_program_name(void* library, const PythonPlace& place) {  // so that it finds its own modules
  wchar_t* (*decode)(const char*, size_t*) = nullptr;
  void (*set_name)(const wchar_t*) = nullptr;
  if (look_up(library, "Py_DecodeLocale", decode) && look_up(library, "Py_SetProgramName", set_name))
    set_name(decode(place.base_executable.c_str(), nullptr));
}

}  // namespace

bool ask_python(const std::string& executable, PythonPlace& place, std::string* why_not) {
  const std::string command = quoted(executable) + " -c " + quoted(kQuestions) + " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  place = {.executable = executable,
           .base_executable = executable,
           .libraries = {},
           .path = {},
           .torch = {},
           .torch_npu = {}};
  std::string all;
  char buffer[4096];
  while (pipe && all.size() < (1u << 20)) {
    const size_t got = std::fread(buffer, 1, sizeof buffer, pipe.get());
    if (got == 0) break;
    all.append(buffer, got);
  }
  std::istringstream lines(all);
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) continue;
    const std::string name = line.substr(0, tab), value = line.substr(tab + 1);
    if (name == "base")
      place.base_executable = value;
    else if (name == "library")
      place.libraries.push_back(value);
    else if (name == "path")
      place.path.push_back(value);
    else if (name == "torch")
      place.torch = value;
    else if (name == "torch_npu")
      place.torch_npu = value;
  }
  if (place.path.empty()) *why_not = str("'", executable, "' does not run");
  return !place.path.empty();
}

void start_python(const PythonPlace& place) {
  Interpreter& python = interpreter();
  if (python.run) return;
  std::string why, reasons;
  void* library = nullptr;
  for (const std::string& file : place.libraries) {
    library = open_library(file, &why);
    if (library) break;
    reasons += str("\n  ", why);
  }
  require(library, Fault::Device, "the library of ", place.executable,
          " does not open, so that torch_npu cannot run inside Apus:", reasons,
          "\nInstall it (Debian: libpython3-dev; conda has it), or name another Python by APUS_PYTHON");
  Interpreter found;
  require(
      look_up(library, "Py_InitializeEx", found.initialize) &&
          look_up(library, "PyEval_SaveThread", found.save_thread) &&
          look_up(library, "PyGILState_Ensure", found.ensure) &&
          look_up(library, "PyGILState_Release", found.release) && look_up(library, "PyRun_SimpleString", found.run),
      Fault::Device, "the library of ", place.executable, " is no CPython: functions of its C interface are missing");
  set_program_name(library, place);
  std::string path;
  for (const std::string& entry : place.path) path += (path.empty() ? "" : ":") + entry;
  ::setenv(kPathVariable, path.c_str(), 1);
  found.initialize(/*signals=*/0);
  found.save_thread();
  python = found;
  run_python(
      str("import os, sys\nsys.argv = ['apus']\nsys.path[:] = os.environ.pop('", kPathVariable, "').split(':')"));
}

std::string run_python(const std::string& statements) {
  const Interpreter& python = interpreter();
  require(python.run, Fault::Bug, "no Python runs in this process");
  const std::string code =
      str("def _apus():\n    import os\n    answer = ''\n", indented(statements), "    os.environ['", kAnswerVariable,
          "'] = str(answer)\ntry:\n    _apus()\nexcept BaseException as error:\n    import os\n    os.environ['",
          kErrorVariable, "'] = type(error).__name__ + ': ' + str(error)\n");
  ::unsetenv(kAnswerVariable), ::unsetenv(kErrorVariable);
  const int state = python.ensure();
  const int status = python.run(code.c_str());
  python.release(state);
  const char *error = std::getenv(kErrorVariable), *answer = std::getenv(kAnswerVariable);
  require(!error && status == 0, Fault::Device, "Python: ", error ? error : "statements failed");
  return answer ? answer : "";
}

}  // namespace apus::ascend
