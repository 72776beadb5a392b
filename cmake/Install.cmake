# cmake --install BUILD --prefix DIR: bin/apus and lib/libapus.so, which it looks for beside itself and in ../lib.
# cpack -G DEB in the build folder: the same as a Debian package, whose dependencies are read off the two files.
include(GNUInstallDirs)
install(TARGETS apus RUNTIME DESTINATION bin)
if(NOT APUS_HOST_ONLY)
  install(TARGETS apus_module LIBRARY DESTINATION lib)
endif()
if(APUS_HAS_AV)
  install(TARGETS apus_av LIBRARY DESTINATION lib)
endif()
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/apus)

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
include(CPack)
