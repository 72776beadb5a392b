# The folders of src/ as targets.
#   apus_host   everything that knows no tensor library: fast to build, fast to start, run under the sanitizers
#   apus_heavy  everything on libtorch, as the module libapus.so that the program opens when a command needs it
#   apus        the program: host + command line. `apus --help` must not pay for loading libtorch (0.4 s).
function(apus_sources out)
  set(found)
  foreach(folder IN LISTS ARGN)
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
    list(APPEND found ${files})
  endforeach()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# Folders without a tensor library, and the single files of other folders that keep to the same rule.
set(APUS_HOST_FOLDERS base text hub guide media gguf quant data reward environment serve doctor plan abilities cli
    algos/estimators algos/options dist/launch engine/answer engine/schedule models/families models/spec parallel/placement
    train/options train/record)
set(APUS_HOST_FILES
    algos/advantages.cpp
    algos/gae.cpp
    algos/teacher_server.cpp
    checkpoint/adapted_folder.cpp
    checkpoint/adapter_config.cpp
    checkpoint/adapter_kinds.cpp
    checkpoint/block_expansion.cpp
    checkpoint/checkpoint_digest.cpp
    checkpoint/gguf_check.cpp
    checkpoint/gguf_folder.cpp
    checkpoint/gguf_settings.cpp
    checkpoint/gguf_sources.cpp
    checkpoint/gguf_tokenizer.cpp
    checkpoint/gguf_tower.cpp
    checkpoint/model_card.cpp
    checkpoint/ollama.cpp
    checkpoint/quantise_checkpoint.cpp
    checkpoint/quantised_weights.cpp
    checkpoint/run_folder.cpp
    checkpoint/vector_files.cpp
    devices/cpu/host.cpp
    devices/cuda/code_order.cpp
    devices/cuda/nvml.cpp
    devices/cuda/nvrtc.cpp
    nn/rope_spec.cpp
    tensor/disk_type.cpp
    tensor/safetensors_header.cpp
    tensor/stored_folder.cpp
    tensor/stored_writer.cpp
    tensor/torch_file.cpp
    tensor/weight_files.cpp
    train/rollout_servers.cpp
)
set(APUS_HEAVY_FOLDERS tensor device ops devices dist nn models checkpoint parallel engine train algos run)

apus_sources(host_sources ${APUS_HOST_FOLDERS})
list(FILTER host_sources EXCLUDE REGEX "/(cli/main\\.cpp|media/av/[^/]*\\.cpp)$")
list(TRANSFORM APUS_HOST_FILES PREPEND ${CMAKE_SOURCE_DIR}/src/ OUTPUT_VARIABLE host_extra)

include(EmbedAssets)
apus_embed_assets(embedded_assets)
# What is done once a run or once a request, not for each byte or token.
set(unhurried ${host_sources} ${host_extra})
list(FILTER unhurried INCLUDE REGEX "/src/(abilities|algos|checkpoint|cli|environment|hub|models|parallel|plan|reward|serve|train)/")
list(REMOVE_ITEM host_sources ${unhurried})
list(REMOVE_ITEM host_extra ${unhurried})
add_library(apus_unhurried OBJECT ${unhurried})
target_compile_options(apus_unhurried PRIVATE $<$<CONFIG:Release>:${APUS_UNHURRIED}>)
add_library(apus_host OBJECT ${host_sources} ${host_extra} ${embedded_assets})
target_sources(apus_host INTERFACE $<TARGET_OBJECTS:apus_unhurried>)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/base/vectors.cpp PROPERTIES
  COMPILE_OPTIONS "${APUS_LOOPS};-ffp-contract=off;-fno-math-errno;-fno-trapping-math" SKIP_PRECOMPILE_HEADERS ON)
# Quantised numbers are the same bits everywhere: no a * b + c in one rounding.
file(GLOB quantised CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/quant/*.cpp)
set_source_files_properties(${quantised} PROPERTIES
  COMPILE_OPTIONS "${APUS_LOOPS};-ffp-contract=off" SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
# Many files in one compilation, which takes a quarter of the time. Not the folders where a file is one of many alike and
# names its parts as they do. cmake -DAPUS_UNITY=OFF is for who changes a file and builds again.
option(APUS_UNITY "compile sources several at a time" ON)
# Sixteen at a time of one folder of src/ (or tests/): a new file moves the others of its own folder only.
function(apus_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${APUS_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    if(IS_ABSOLUTE ${source})
      file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${source})
    endif()
    string(REGEX REPLACE "^([^/]+)/([^/]+)/.*" "\\1_\\2" folder ${path})
    math(EXPR group "0${count_${folder}} / 16")
    math(EXPR count_${folder} "0${count_${folder}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()
file(GLOB alike CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/text/jinja/*.cpp)
set_source_files_properties(${alike} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# Tables and searches of ggml's formats, and how families stand in GGUF files: each by itself.
foreach(alone gguf/form gguf/ggml_grids gguf/ggml_read_iq gguf/ggml_write_iq4 gguf/ggml_write_k gguf/imatrix gguf/slice gguf/turns
        gguf/words guide/guide checkpoint/gguf_check checkpoint/gguf_sources checkpoint/attach nn/vera media/minicpm)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/${alone}.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
# What nearly every file includes is read once, which halves the time of a build. No header of our own: a compiler cache
# looks past a changed comment and would hand out a precompiled header of another text, whose `#pragma once` then fails.
set(host_prelude <algorithm> <cstdint> <filesystem> <functional> <map> <memory> <optional> <sstream> <stdexcept> <string>
    <vector> <nlohmann/json.hpp>)
set(heavy_prelude <ATen/core/Tensor.h> <ATen/TensorOperators.h>)
# zlib and zstd behind openssl, whose static archives may need them: not every linker looks back.
foreach(part apus_host apus_unhurried)
  target_include_directories(${part} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_precompile_headers(${part} PRIVATE ${host_prelude})
  target_compile_definitions(${part} PRIVATE APUS_VERSION="${PROJECT_VERSION}")
  apus_unity(${part})
  target_link_libraries(${part} PUBLIC apus::json apus::pcre2 apus::utf8proc apus::yaml apus::openssl apus::zlib apus::zstd apus::curl apus::boost Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
# Pictures of a format whose library is missing are refused.
foreach(format jpeg png webp)
  string(TOUPPER ${format} upper)
  if(APUS_HAS_${upper})
    set_source_files_properties(${CMAKE_SOURCE_DIR}/src/media/${format}.cpp PROPERTIES
      COMPILE_DEFINITIONS APUS_WITH_${upper} SKIP_UNITY_BUILD_INCLUSION ON)
    target_link_libraries(apus_host PUBLIC apus::${format})
  endif()
endforeach()
# In a library of its own, which is opened when a video comes: FFmpeg brings a hundred others.
if(APUS_HAS_AV)
  add_library(apus_av MODULE ${CMAKE_SOURCE_DIR}/src/media/av/plugin.cpp
                               ${CMAKE_SOURCE_DIR}/src/media/av/write_sound.cpp)
  target_include_directories(apus_av PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(apus_av PRIVATE apus::av)
  set_target_properties(apus_av PROPERTIES OUTPUT_NAME apus-av LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endif()
# Loops over the taps of a filter gain from vector code.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/media/resize.cpp PROPERTIES
  COMPILE_OPTIONS "${APUS_LOOPS}" SKIP_PRECOMPILE_HEADERS ON)

include(CpuKernels)
apus_cpu_kernels()

add_executable(apus src/cli/main.cpp)
target_link_libraries(apus PRIVATE apus_host)
if(APUS_HAS_AV)
  add_dependencies(apus apus_av)
endif()
set_target_properties(apus PROPERTIES ENABLE_EXPORTS ON)  # libapus.so uses the host objects of the program
# Not what APUS_DEPS' archives bring: the machine's libcurl would take this OpenSSL for its own. (Of the sanitizers'
# archives everything has to stay in sight.)
if(APUS_DEPS)
  target_link_options(apus PRIVATE -Wl,--exclude-libs,ALL)
endif()

if(NOT APUS_HOST_ONLY)
  apus_sources(heavy_sources ${APUS_HEAVY_FOLDERS})
  list(REMOVE_ITEM heavy_sources ${host_sources} ${host_extra} ${unhurried})
  if(NOT APUS_TORCH_CUDA)
    list(FILTER heavy_sources EXCLUDE REGEX "/devices/cuda/")
  else()
    list(FILTER heavy_sources EXCLUDE REGEX "/devices/without_cuda\\.cpp$")
  endif()
  # Two preludes: operators and devices register with the dispatcher, whose headers cost others ten seconds a file.
  set(op_sources ${heavy_sources})
  list(FILTER op_sources INCLUDE REGEX "/src/(ops|devices)/")
  list(REMOVE_ITEM heavy_sources ${op_sources})
  list(FILTER op_sources EXCLUDE REGEX "/devices/cpu/kernels/")  # apus_kernels
  add_library(apus_ops OBJECT ${op_sources})
  target_precompile_headers(apus_ops PRIVATE ${host_prelude} ${heavy_prelude} <torch/library.h> <torch/csrc/autograd/custom_function.h>)
  add_library(apus_heavy OBJECT ${heavy_sources})
  target_precompile_headers(apus_heavy PRIVATE ${host_prelude} ${heavy_prelude})
  apus_unity(apus_heavy)
  apus_use_kernels(apus_ops)
  foreach(part apus_ops apus_heavy)
    target_include_directories(${part} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${part} PUBLIC apus::torch apus::json ${CMAKE_DL_LIBS})
  endforeach()
  add_library(apus_module MODULE)
  target_link_libraries(apus_module PRIVATE apus_heavy apus_ops)
  set_target_properties(apus_module PROPERTIES OUTPUT_NAME apus LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  add_dependencies(apus apus_module)
endif()
