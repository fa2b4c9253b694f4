# The trainers' benchmarks: apus_bench_dpo_reference, which `all` leaves out.
if(NOT TARGET apus_bench_dpo_reference)
  add_executable(apus_bench_dpo_reference EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/dpo_reference.cpp)
  target_link_libraries(apus_bench_dpo_reference PRIVATE apus_upto_train)
  set_target_properties(apus_bench_dpo_reference PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endif()
