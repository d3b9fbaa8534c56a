# What `cmake --install` lays down: the library, its headers, a CMake package, a pkg-config file and,
# where it is built, the pagekv command.
include(CMakePackageConfigHelpers)

set(pagekv_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pagekv)
get_target_property(pagekv_type pagekv TYPE)
string(COMPARE EQUAL ${pagekv_type} STATIC_LIBRARY pagekv_is_static)

install(TARGETS pagekv EXPORT pagekv-targets FILE_SET HEADERS)
install(EXPORT pagekv-targets NAMESPACE pagekv:: DESTINATION ${pagekv_package_dir})

configure_package_config_file(cmake/pagekv-config.cmake.in pagekv-config.cmake
                              INSTALL_DESTINATION ${pagekv_package_dir}
                              NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may change the interface, as the SOVERSION says.
write_basic_package_version_file(pagekv-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/pagekv-config.cmake
              ${PROJECT_BINARY_DIR}/pagekv-config-version.cmake
        DESTINATION ${pagekv_package_dir})

# pkg-config: the prefix is found from where the file lies, so that `--prefix` at install time and
# a moved tree work. tl/expected.hpp is part of the interface; the rest only a static link needs.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX OUTPUT_VARIABLE pagekv_pc_prefix
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
find_package(tl-expected REQUIRED)  # imported targets are seen only where they were found
get_target_property(pagekv_pc_cflags tl::expected INTERFACE_INCLUDE_DIRECTORIES)
list(REMOVE_DUPLICATES pagekv_pc_cflags)
list(TRANSFORM pagekv_pc_cflags PREPEND "-I")
list(JOIN pagekv_pc_cflags " " pagekv_pc_cflags)
set(pagekv_pc_libs_private "")
if(pagekv_is_static)
  string(APPEND pagekv_pc_cflags " -DPAGEKV_STATIC")
  set(pagekv_pc_libs_private "-lhwy -lcrypto -lxxhash -pthread")
  if(PAGEKV_TBB)
    string(PREPEND pagekv_pc_libs_private "-ltbb ")
  endif()
endif()
configure_file(cmake/pagekv.pc.in pagekv.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/pagekv.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(PAGEKV_TOOLS)
  file(RELATIVE_PATH pagekv_lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(pagekv_tool PROPERTIES INSTALL_RPATH "$ORIGIN/${pagekv_lib_from_bin}")
  install(TARGETS pagekv_tool)
endif()
