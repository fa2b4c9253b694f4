# The communicator's benchmark, which `all` leaves out: apus_bench_comm, over NCCL in a build with CUDA and over Gloo in
# any. It starts its ranks by the launcher.
if(NOT TARGET apus_bench_comm)
  add_executable(apus_bench_comm EXCLUDE_FROM_ALL
    ${CMAKE_CURRENT_LIST_DIR}/comm_bench.cpp ${CMAKE_CURRENT_LIST_DIR}/bench_ranks.cpp)
  target_link_libraries(apus_bench_comm PRIVATE apus_upto_comm apus_launch)
  target_sources(apus_bench_comm PRIVATE $<TARGET_OBJECTS:apus_launch>)
  target_include_directories(apus_bench_comm PRIVATE ${PROJECT_SOURCE_DIR})
  set_target_properties(apus_bench_comm PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endif()
