# cmake --install BUILD --prefix DIR: bin/apus and lib/libapus.so, which it looks for beside itself and in ../lib.
# cpack -G DEB or -G RPM in the build folder: the same as a package, whose dependencies are read off the two files.
include(GNUInstallDirs)
install(TARGETS apus RUNTIME DESTINATION bin)
if(NOT APUS_HOST_ONLY)
  install(TARGETS apus_module LIBRARY DESTINATION lib)
endif()
if(APUS_HAS_AV)
  install(TARGETS apus_av LIBRARY DESTINATION lib)
endif()
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/apus)

# What shells and man(1) read, written by the program itself, which an emulator runs where it is of another processor.
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
  install(CODE "
    set(apus ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:apus>)
    foreach(page IN ITEMS \"completion bash:share/bash-completion/completions/apus\"
                          \"completion zsh:share/zsh/site-functions/_apus\"
                          \"completion fish:share/fish/vendor_completions.d/apus.fish\"
                          \"manual:share/man/man1/apus.1\" \"manual sft:share/man/man1/apus-sft.1\"
                          \"manual rlhf:share/man/man1/apus-rlhf.1\" \"manual infer:share/man/man1/apus-infer.1\"
                          \"manual deploy:share/man/man1/apus-deploy.1\" \"manual export:share/man/man1/apus-export.1\")
      string(REGEX REPLACE \":.*\" \"\" words \"\${page}\")
      string(REGEX REPLACE \".*:\" \"\" file \"\${page}\")
      separate_arguments(words)
      execute_process(COMMAND \${apus} \${words} OUTPUT_VARIABLE text RESULT_VARIABLE failed)
      if(failed)
        message(FATAL_ERROR \"apus \${words} failed\")
      endif()
      file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/\${file}\" \"\${text}\")
    endforeach()")
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME apus)
set(CPACK_PACKAGE_CONTACT "the authors of Apus <apus@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Fine-tunes, aligns, runs and serves language models")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libopenblas0-pthread)  # the reference BLAS is 30 to 50 times slower
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/share/man /usr/share/man/man1 /usr/share/zsh
    /usr/share/zsh/site-functions /usr/share/fish /usr/share/fish/vendor_completions.d /usr/share/bash-completion
    /usr/share/bash-completion/completions)
include(CPack)
