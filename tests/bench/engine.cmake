# The engine's benchmarks: apus_bench_engine_overlap, which `all` leaves out.
if(NOT TARGET apus_bench_engine_overlap)
  add_executable(apus_bench_engine_overlap EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/engine_overlap.cpp)
  target_link_libraries(apus_bench_engine_overlap PRIVATE apus_upto_parallel)
  set_target_properties(apus_bench_engine_overlap PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endif()
