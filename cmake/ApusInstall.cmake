# `cmake --install`: libapus.so, the program, the public headers, and the package for find_package(apus).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/apus)
get_filename_component(_torch_root ${LibTorch_LIB_DIR} DIRECTORY)

# libtorch is not installed with apus: what is installed finds it where it was when it was built.
set_target_properties(apus PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS apus EXPORT apusTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET apus_program)
  set_target_properties(apus_program PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS apus_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/apus DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/apusConfig.cmake.in ${PROJECT_BINARY_DIR}/apusConfig.cmake
  INSTALL_DESTINATION ${_package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/apusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/apusConfig.cmake ${PROJECT_BINARY_DIR}/apusConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/FindLibTorch.cmake DESTINATION ${_package})
install(EXPORT apusTargets NAMESPACE apus:: DESTINATION ${_package})
