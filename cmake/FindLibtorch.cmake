# Finds libtorch: a given Torch_DIR, else pip's torch of the python3 on PATH, else Debian's libtorch-dev.
# Gives the target apus::torch and APUS_TORCH_CUDA (ON when this torch has CUDA).
if(NOT Torch_DIR AND NOT CMAKE_CROSSCOMPILING)
  find_program(APUS_PYTHON python3)
  if(APUS_PYTHON)
    execute_process(COMMAND ${APUS_PYTHON} -c "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
                    OUTPUT_VARIABLE pip_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(pip_torch AND EXISTS "${pip_torch}/share/cmake/Torch/TorchConfig.cmake")
      set(Torch_DIR "${pip_torch}/share/cmake/Torch")
    endif()
  endif()
endif()
# TorchConfig is not used: it wants the CUDA toolkit even where only headers and libraries are needed. Torch_DIR tells the
# place: share/cmake/Torch of a folder (pip's, the archive of pytorch.org), or lib/<machine>/cmake/Torch of a system.
set(torch_places)
if(Torch_DIR)
  get_filename_component(torch_root "${Torch_DIR}/../../.." ABSOLUTE)
  get_filename_component(torch_system "${Torch_DIR}/../.." ABSOLUTE)
  set(torch_places PATHS ${torch_root}/include ${torch_root}/lib ${torch_root}/../include ${torch_system} NO_DEFAULT_PATH)
endif()
find_path(torch_include torch/csrc/autograd/function.h ${torch_places} NO_CACHE)
find_library(torch_cpu torch_cpu ${torch_places} NO_CACHE)
find_library(torch_c10 c10 ${torch_places} NO_CACHE)
if(NOT torch_include OR NOT torch_cpu OR NOT torch_c10)
  if(Torch_DIR)
    message(FATAL_ERROR "Torch_DIR=${Torch_DIR}: no headers or no libtorch_cpu.so beside it (looked at ${torch_root} and ${torch_system})")
  endif()
  message(FATAL_ERROR "libtorch not found. Any of these will do:\n"
    "  pip install torch            (the python3 on PATH is asked)\n"
    "  -DTorch_DIR=<libtorch>/share/cmake/Torch\n"
    "  apt-get install libtorch-dev (Debian)")
endif()
get_filename_component(torch_lib "${torch_cpu}" DIRECTORY)
add_library(apus_torch_interface INTERFACE)
target_include_directories(apus_torch_interface SYSTEM INTERFACE ${torch_include} ${torch_include}/torch/csrc/api/include)
target_link_libraries(apus_torch_interface INTERFACE ${torch_cpu} ${torch_c10})
set(APUS_INSTALL_RPATH "" CACHE STRING
    "where an installed libapus.so looks for libtorch ($ORIGIN: its own folder); by default where it was found")
if(Torch_DIR)
  set(CMAKE_BUILD_RPATH "${torch_lib}")
  set(CMAKE_INSTALL_RPATH "${torch_lib}")
endif()

set(APUS_TORCH_CUDA OFF)
if(EXISTS "${torch_lib}/libtorch_cuda.so")
  # Headers of the CUDA runtime: pip's nvidia packages lie beside torch, or a toolkit is installed.
  set(pip_nvidia ${torch_lib}/../../nvidia)
  find_path(cuda_include cuda_runtime_api.h PATHS ${pip_nvidia}/cuda_runtime/include ${pip_nvidia}/cu13/include
            $ENV{CUDA_HOME}/include /usr/local/cuda/include)
  find_library(cuda_runtime NAMES cudart libcudart.so.13 libcudart.so.12 libcudart.so.11.0 PATHS ${pip_nvidia}/cuda_runtime/lib
               ${pip_nvidia}/cu13/lib $ENV{CUDA_HOME}/lib64 /usr/local/cuda/lib64 ${torch_lib})
  # Headers of newer releases of libtorch include cuda_runtime.h, whose own headers pip has in a package apart.
  find_path(cuda_crt crt/host_config.h PATHS ${cuda_include} ${pip_nvidia}/cuda_nvcc/include)
  if(cuda_include AND cuda_crt AND cuda_runtime)
    set(APUS_TORCH_CUDA ON)
    file(GLOB nvidia_includes ${pip_nvidia}/*/include)  # NCCL's and what its header of libtorch includes
    target_include_directories(apus_torch_interface SYSTEM INTERFACE ${cuda_include} ${cuda_crt} ${nvidia_includes})
    # Nothing may refer to libtorch_cuda directly and it must be loaded all the same: it registers the kernels.
    target_link_libraries(apus_torch_interface INTERFACE -Wl,--no-as-needed ${torch_lib}/libtorch_cuda.so ${torch_lib}/libc10_cuda.so ${cuda_runtime} -Wl,--as-needed)
    get_filename_component(cuda_lib "${cuda_runtime}" DIRECTORY)
    list(APPEND CMAKE_INSTALL_RPATH ${cuda_lib})
  else()
    message(WARNING "libtorch has CUDA, but the headers or the library of the CUDA runtime are missing: built without cuda. "
                    "pip install nvidia-cuda-runtime nvidia-cuda-crt of torch's CUDA version (12: nvidia-cuda-runtime-cu12 "
                    "nvidia-cuda-nvcc-cu12), or set CUDA_HOME, or apt-get install nvidia-cuda-dev (Debian)")
  endif()
endif()
if(APUS_INSTALL_RPATH)
  set(CMAKE_INSTALL_RPATH "${APUS_INSTALL_RPATH}")
endif()
# The C++ ABI flag must match the library's: ask the library which std::string its symbols use.
execute_process(COMMAND sh -c "'${CMAKE_NM}' -D --defined-only '${torch_lib}/libc10.so' 2>/dev/null | grep -c __cxx11" OUTPUT_VARIABLE cxx11_symbols OUTPUT_STRIP_TRAILING_WHITESPACE)
if(cxx11_symbols STREQUAL "0")
  target_compile_definitions(apus_torch_interface INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
endif()
target_compile_definitions(apus_torch_interface INTERFACE AT_PER_OPERATOR_HEADERS)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  target_compile_options(apus_torch_interface INTERFACE -Wno-stringop-overflow)  # an impossible one, in libtorch's IValue
endif()
add_library(apus::torch ALIAS apus_torch_interface)
message(STATUS "libtorch: ${torch_lib} (CUDA ${APUS_TORCH_CUDA})")
