# Uses pagekv as other projects do: by find_package and by pkg-config from an installed tree, shared
# and static, and by add_subdirectory. The last builds the library once more (static, quickly, without
# optimisation), and what it builds is also what gets installed as the static package.
find_package(PkgConfig REQUIRED)
set(consumer ${PROJECT_SOURCE_DIR}/tests/consumer)
set(work ${CMAKE_CURRENT_BINARY_DIR}/consumer)

function(consumer_test name)
  add_test(NAME consumer.${name} COMMAND ${ARGN})
  set_tests_properties(consumer.${name} PROPERTIES LABELS quick TIMEOUT 600)
endfunction()

# consumer_build(name option...): configures, builds and runs the consumer project.
function(consumer_build name)
  consumer_test(${name}
    ${CMAKE_CTEST_COMMAND} --build-and-test ${consumer} ${work}/${name} --build-noclean
    --build-generator ${CMAKE_GENERATOR}
    --build-options -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_BUILD_TYPE=Debug ${ARGN}
    --test-command ${work}/${name}/consumer)
endfunction()

# consumer_package(kind build_dir): installs a build and uses it in both ways.
function(consumer_package kind build_dir)
  set(prefix ${work}/${kind}-prefix)
  consumer_test(${kind}_install ${CMAKE_COMMAND} --install ${build_dir} --prefix ${prefix})
  consumer_build(${kind}_find_package -DCMAKE_PREFIX_PATH=${prefix})
  consumer_test(${kind}_pkg_config ${consumer}/pkg_config.sh ${kind} ${prefix}
                ${CMAKE_CXX_COMPILER} ${PKG_CONFIG_EXECUTABLE})
  set_tests_properties(consumer.${kind}_install PROPERTIES FIXTURES_SETUP ${kind}_package)
  set_tests_properties(consumer.${kind}_find_package consumer.${kind}_pkg_config PROPERTIES
                       FIXTURES_REQUIRED ${kind}_package)
endfunction()

if(BUILD_SHARED_LIBS)
  consumer_package(shared ${PROJECT_BINARY_DIR})
endif()
consumer_build(subdirectory -DPAGEKV_SOURCE=${PROJECT_SOURCE_DIR})
set_tests_properties(consumer.subdirectory PROPERTIES FIXTURES_SETUP subdirectory_build)
consumer_package(static ${work}/subdirectory)
set_tests_properties(consumer.static_install PROPERTIES FIXTURES_REQUIRED subdirectory_build)
