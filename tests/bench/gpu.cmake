# Benchmarks for a GPU, which `all` leaves out: apus_bench_op (each op_bench_NAME.cpp gives it the cases of
# add_NAME_cases) and, with or without CUDA, apus_bench_train.
if(TARGET apus::cuda AND NOT TARGET apus_bench_op)
  file(GLOB op_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/op_bench_*.cpp)
  set(APUS_OP_DECLARATIONS "")
  set(APUS_OP_CALLS "")
  foreach(source IN LISTS op_sources)
    get_filename_component(op ${source} NAME_WE)
    string(REGEX REPLACE "^op_bench_" "" op ${op})
    string(APPEND APUS_OP_DECLARATIONS "void add_${op}_cases(Suite& suite);\n")
    string(APPEND APUS_OP_CALLS "  add_${op}_cases(suite);\n")
  endforeach()
  set(all_cases ${CMAKE_CURRENT_BINARY_DIR}/op_bench_all_cases.cpp)
  file(CONFIGURE OUTPUT ${all_cases} @ONLY CONTENT [=[
#include "tests/bench/op_bench.h"
namespace apus::bench {
@APUS_OP_DECLARATIONS@
void add_all_cases([[maybe_unused]] Suite& suite) {
@APUS_OP_CALLS@}
}  // namespace apus::bench
]=])
  add_executable(apus_bench_op EXCLUDE_FROM_ALL
    ${CMAKE_CURRENT_LIST_DIR}/op_bench.cpp ${op_sources} ${all_cases})
  target_link_libraries(apus_bench_op PRIVATE apus_upto_train)
  target_include_directories(apus_bench_op PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(apus_bench_op PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endif()

if(NOT TARGET apus_bench_train)
  file(GLOB train_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/train_bench*.cpp)
  if(TARGET apus::cuda)
    list(FILTER train_sources EXCLUDE REGEX "_no_cuda\\.cpp$")
    find_path(APUS_CUPTI_INCLUDE cupti.h
      HINTS ${APUS_CUDA_INCLUDE} ${APUS_CUDA_INCLUDE}/../extras/CUPTI/include REQUIRED)
  else()
    list(FILTER train_sources EXCLUDE REGEX "/train_bench_(device|profile)_cuda\\.cpp$")
  endif()
  add_executable(apus_bench_train EXCLUDE_FROM_ALL ${train_sources} ${CMAKE_CURRENT_LIST_DIR}/bench_ranks.cpp)
  target_link_libraries(apus_bench_train PRIVATE apus_upto_launch ${CMAKE_DL_LIBS})
  target_include_directories(apus_bench_train PRIVATE ${PROJECT_SOURCE_DIR})
  if(TARGET apus::cuda)
    target_include_directories(apus_bench_train SYSTEM PRIVATE ${APUS_CUPTI_INCLUDE})
  endif()
  set_target_properties(apus_bench_train PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endif()
