# tp2_library, tp2_tool and tp2_test: the only ways this project defines a target.

add_library(tp2_options INTERFACE)
target_include_directories(tp2_options INTERFACE ${PROJECT_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_options(tp2_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wno-unused-parameter -Werror=unused-result
    -Werror=return-type -ffp-contract=off>)
target_link_libraries(tp2_options INTERFACE Threads::Threads)

# tp2_library(name SOURCES a.cc b.cc HEADERS a.h b.h DEPS tp2_base absl::status)
# A library without sources is header-only.
function(tp2_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;HEADERS;DEPS" ${ARGN})
  if(arg_SOURCES)
    add_library(${name} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${name} ${scope} tp2_options ${arg_DEPS})
  target_sources(${name} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${arg_HEADERS})
  set_target_properties(${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# tp2_kernel_options(name): how a library's kernels are compiled. -fmad=false and IEEE division and roots are the
# bit contract of libcore/math. No kernel spills registers: warnings are errors.
function(tp2_kernel_options name)
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo --expt-relaxed-constexpr -fmad=false -prec-div=true -prec-sqrt=true
      -ftz=false -Werror=all-warnings -Xptxas=--warn-on-spills
      -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter>)
endfunction()

# tp2_tool(name DEPS ...): cmd/<name>/{main,flags,run}.cc into build/<preset>/bin/<name>.
function(tp2_tool name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} main.cc flags.cc run.cc ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tp2_options tp2_base tp2_report CLI11::CLI11 ${arg_DEPS})
  install(TARGETS ${name} RUNTIME)
endfunction()

# tp2_test(name LABEL cpu SOURCES a_test.cc DEPS tp2_base): one gtest binary; one label (two lose the second, CMake 3.25).
function(tp2_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT arg_LABEL)
    set(arg_LABEL cpu)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tp2_options ${arg_DEPS} GTest::gtest_main GTest::gmock)
  target_compile_definitions(${name} PRIVATE TP2_SOURCE_DIR="${PROJECT_SOURCE_DIR}" TP2_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
  include(GoogleTest)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
endfunction()
