# Compiler launcher, linker, warnings and sanitizers, for every target of the project.
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  # What the cache must overlook to keep objects made with a precompiled header.
  # Paths below the project's root are relative to it there: what one checkout compiled serves the next.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
      ${CMAKE_SOURCE_DIR}/cmake/cached-compiler ${CCACHE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Its garbage is not collected below half a gigabyte: a seventh of the time, for a fifth more memory.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
  # False warnings inside std::string: a precompiled header forgets which of its headers are the system's. And, where
  # several files are compiled as one, about classes of a .cpp that hold private ones.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds> $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow> $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread>
                      $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
find_program(LLD ld.lld)
if(LLD AND NOT CMAKE_CROSSCOMPILING)  # a cross compiler of Debian looks for one of its own
  add_link_options(-fuse-ld=lld)
endif()
# Without -ffast-math: results must not depend on the compiler's mood.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  # As on x86: chars have signs, and a * b + c is rounded twice where nothing else is said.
  add_compile_options(-fsigned-char -ffp-contract=off)
endif()
add_compile_options(-Wall -Wextra -Wno-unused-parameter $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>)
# Of the files with inner loops, and of what is done once a run or once a request (a third less to compile). Under sanitizers
# clang took twenty minutes for the loops at -O3, and for the others takes twice as long at -O1 as at -O0.
set(APUS_LOOPS "-O3")
set(APUS_UNHURRIED "-O1")
if(APUS_SANITIZE OR APUS_FUZZ)
  set(APUS_LOOPS "-O1")
  set(APUS_UNHURRIED "-O0")
endif()
if(APUS_SANITIZE)
  add_compile_options(-fsanitize=${APUS_SANITIZE} -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=${APUS_SANITIZE})
endif()
if(APUS_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "APUS_FUZZ needs clang: -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_C_COMPILER=clang")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1 -O1)
  add_link_options(-fsanitize=address,undefined)
endif()
