# Compiler flags of everything built here. Targets link pagekv_flags privately.
add_library(pagekv_flags INTERFACE)
# No contraction: encode and gather give the same bytes on every target.
target_compile_options(pagekv_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlapping copies in `"text" + std::string` where there are none.
  target_compile_options(pagekv_flags INTERFACE -Wno-restrict)
endif()
if(PAGEKV_WERROR)
  target_compile_options(pagekv_flags INTERFACE -Werror)
endif()
if(PAGEKV_SANITIZE)
  target_compile_options(pagekv_flags INTERFACE -fsanitize=${PAGEKV_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(pagekv_flags INTERFACE -fsanitize=${PAGEKV_SANITIZE})
endif()
# Vector targets: the baseline, SSE4, AVX2 and AVX-512 on x86-64; NEON on aarch64. The others Highway
# knows would only add compile time, or (scalable vectors) cannot be held in arrays. Names that an
# older Highway lacks must not be named to it.
find_package(hwy REQUIRED)
set(pagekv_disabled_targets HWY_SSSE3 HWY_AVX3_DL HWY_SVE HWY_SVE2 HWY_SVE_256 HWY_SVE2_128 HWY_RVV)
if(hwy_VERSION VERSION_GREATER_EQUAL 1.1)
  list(APPEND pagekv_disabled_targets HWY_AVX3_ZEN4 HWY_AVX3_SPR)
endif()
if(hwy_VERSION VERSION_GREATER_EQUAL 1.2)
  list(APPEND pagekv_disabled_targets HWY_NEON_BF16)
endif()
list(JOIN pagekv_disabled_targets "|" pagekv_disabled_targets)
add_library(pagekv_simd INTERFACE)
target_compile_definitions(pagekv_simd INTERFACE "HWY_DISABLED_TARGETS=(${pagekv_disabled_targets})")
# Adds files of kernels: a handful of functions each, with hundreds of inlined ones in them. What
# follows every local of those, and what asks again at every address, takes compilers minutes a file;
# that every access lies inside its object is still checked, by a call.
set(pagekv_kernel_options)
if(PAGEKV_SANITIZE MATCHES address)
  list(APPEND pagekv_kernel_options -fno-sanitize-address-use-after-scope)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND pagekv_kernel_options --param=asan-instrumentation-with-call-threshold=0)
  else()
    list(APPEND pagekv_kernel_options "SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
  endif()
endif()
if(PAGEKV_SANITIZE MATCHES undefined)
  list(APPEND pagekv_kernel_options -fno-sanitize=object-size,pointer-overflow)
endif()
function(pagekv_add_kernels target)
  target_sources(${target} PRIVATE ${ARGN})
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "${pagekv_kernel_options}")
endfunction()
