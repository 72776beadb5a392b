# Makes the files of assets/, and the texts of GPU kernels as kernels/, part of the program: assembles them in as they are,
# with a table of their names.
function(apus_embed_assets out)
  file(GLOB_RECURSE assets CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/assets ${CMAKE_SOURCE_DIR}/assets/*)
  file(GLOB kernels CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src/devices/cuda ${CMAKE_SOURCE_DIR}/src/devices/cuda/kernels/*)
  list(APPEND assets ${kernels})
  set(blobs "")
  set(externs "")
  set(rows "")
  set(paths "")
  set(index 0)
  foreach(asset IN LISTS assets)
    set(symbol "apus_asset_${index}")
    set(path ${CMAKE_SOURCE_DIR}/assets/${asset})
    if(asset IN_LIST kernels)
      set(path ${CMAKE_SOURCE_DIR}/src/devices/cuda/${asset})
    endif()
    string(APPEND blobs "asm(\".section .rodata\\n.balign 16\\n.globl ${symbol}\\n${symbol}:\\n.incbin \\\"${path}\\\"\\n.globl ${symbol}_end\\n${symbol}_end:\\n.byte 0\\n.text\\n\");\n")
    string(APPEND externs "extern const char ${symbol}[], ${symbol}_end[];\n")
    string(APPEND rows "    {\"${asset}\", ${symbol}, ${symbol}_end},\n")
    list(APPEND paths ${path})
    math(EXPR index "${index} + 1")
  endforeach()
  set(file ${CMAKE_BINARY_DIR}/embedded_assets.cpp)
  file(CONFIGURE OUTPUT ${file} CONTENT "// Generated from assets/.
#include \"base/embedded.h\"
${blobs}
extern \"C\" {
${externs}}
namespace apus {
const EmbeddedAsset* embedded_assets() {
  static const EmbeddedAsset table[] = {
${rows}    {nullptr, nullptr, nullptr}};
  return table;
}
}  // namespace apus
" @ONLY)
  set_source_files_properties(${file} PROPERTIES OBJECT_DEPENDS "${paths}" SKIP_UNITY_BUILD_INCLUSION ON)
  set(${out} ${file} PARENT_SCOPE)
endfunction()
