# Which instruction sets the inner loops of devices/cpu are compiled for; the program chooses at run time. These files include
# no library with inline functions (see kernels.h). -ffp-contract=fast: a * b + c is one FMA, always: since version 14 g++ leaves
# it in two in some sums (avoid-fma-max-bits), and a row would no longer have the same result alone and among others.
function(apus_cpu_kernels target root)
  set(folder ${root}/src/devices/cpu)
  set(common "-O3;-ffp-contract=fast;-fno-math-errno;-fno-trapping-math")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND common "--param=avoid-fma-max-bits=0")
  endif()
  set_property(SOURCE ${folder}/level_generic.cpp PROPERTY COMPILE_OPTIONS "${common}")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(avx512 "-mavx2;-mfma;-mf16c;-mbmi2;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512bf16;-mprefer-vector-width=512;-Wno-uninitialized")  # a false warning inside g++ 12's own immintrin.h
    set_property(SOURCE ${folder}/level_avx2.cpp PROPERTY COMPILE_OPTIONS "${common};-mavx2;-mfma;-mbmi2")
    set_property(SOURCE ${folder}/level_avx512.cpp PROPERTY COMPILE_OPTIONS "${common};${avx512}")
    set_property(SOURCE ${folder}/multiply_amx.cpp PROPERTY COMPILE_OPTIONS "${common};${avx512};-mamx-tile;-mamx-bf16")
  else()
    set_property(SOURCE ${folder}/level_avx2.cpp ${folder}/level_avx512.cpp ${folder}/multiply_amx.cpp PROPERTY HEADER_FILE_ONLY ON)
  endif()
  # The threads are libtorch's own: pip's libtorch carries a renamed OpenMP library, and a second pool would fight it for cores.
  set_property(SOURCE ${folder}/parallel.cpp APPEND PROPERTY COMPILE_OPTIONS -fopenmp)
  file(GLOB bundled ${torch_lib}/libgomp*.so*)
  if(bundled)
    target_link_libraries(${target} PUBLIC ${bundled})
  else()
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_link_libraries(${target} PUBLIC ${OpenMP_CXX_LIBRARIES})
  endif()
endfunction()
