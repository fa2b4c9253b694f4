# Decides whether the CUDA parts are built (APUS_CUDA: AUTO, ON or OFF), and defines the imported target
# apus::cuda: libtorch's CUDA half, NCCL, cuDNN and the CUDA toolkit's libraries. Never libcuda: the driver is
# not there on machines that only build.
if(NOT APUS_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "APUS_CUDA is ${APUS_CUDA}; it takes AUTO, ON or OFF")
endif()
if(APUS_CUDA STREQUAL OFF)
  message(STATUS "apus: without CUDA (APUS_CUDA=OFF)")
  return()
endif()

find_program(APUS_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
set(_cuda_lib "")
if(APUS_NVCC)
  file(REAL_PATH ${APUS_NVCC} _nvcc)
  get_filename_component(_cuda_bin ${_nvcc} DIRECTORY)
  get_filename_component(_cuda_root ${_cuda_bin} DIRECTORY)
  set(_cuda_lib ${_cuda_root}/lib64 ${_cuda_root}/lib)
endif()
find_package(NCCL QUIET)
foreach(_name torch_cuda c10_cuda)
  find_library(APUS_LIB_${_name} ${_name} HINTS ${LibTorch_LIB_DIR} NO_DEFAULT_PATH)
endforeach()
foreach(_name cudart cudnn cublasLt cublas nvrtc)
  find_library(APUS_LIB_${_name} ${_name} HINTS ${_cuda_lib})
endforeach()

find_path(APUS_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
  HINTS ${LibTorch_LIB_DIR}/../cudnn-frontend/include ${_cuda_root}/include)

# What is missing, each with its remedy.
set(_missing "")
if(NOT APUS_NVCC)
  list(APPEND _missing "nvcc (install the CUDA toolkit 12.6 or later, or put its bin folder on the PATH)")
endif()
if(NOT APUS_LIB_torch_cuda OR NOT APUS_LIB_c10_cuda)
  list(APPEND _missing "libtorch_cuda in ${LibTorch_LIB_DIR} (run cmake/bootstrap.sh --cuda, or set APUS_TORCH_ROOT to a libtorch with CUDA)")
endif()
if(NOT NCCL_FOUND)
  list(APPEND _missing "NCCL (install libnccl-dev, or set NCCL_ROOT)")
endif()
if(NOT APUS_CUDNN_FRONTEND_INCLUDE)
  list(APPEND _missing "cudnn_frontend.h (run cmake/bootstrap.sh --cuda, or set APUS_CUDNN_FRONTEND_INCLUDE)")
endif()
foreach(_name cudart cudnn cublasLt cublas nvrtc)
  if(APUS_NVCC AND NOT APUS_LIB_${_name})
    list(APPEND _missing "lib${_name} (part of the CUDA toolkit or of cuDNN; set CMAKE_LIBRARY_PATH to its folder)")
  endif()
endforeach()
if(_missing)
  list(JOIN _missing "; " _missing)
  if(APUS_CUDA STREQUAL ON)
    message(FATAL_ERROR "APUS_CUDA=ON, but there is no ${_missing}")
  endif()
  message(STATUS "apus: without CUDA, as there is no ${_missing}")
  return()
endif()

# The architectures stand in the options of the targets: machine code for A100 and H100, and PTX for what follows.
set(CMAKE_CUDA_COMPILER ${APUS_NVCC})
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
set(CMAKE_CUDA_ARCHITECTURES OFF)
enable_language(CUDA)
# CMake 3.25 knows no C++20 for nvcc, which has it.
foreach(_kind STANDARD EXTENSION)
  set(CMAKE_CUDA20_${_kind}_COMPILE_OPTION "-std=c++20")
endforeach()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
if(APUS_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${APUS_CCACHE})
endif()
find_path(APUS_CUDA_INCLUDE cuda_runtime_api.h HINTS ${_cuda_root}/include)
find_path(APUS_CUDNN_INCLUDE cudnn.h HINTS ${_cuda_root}/include)

add_library(apus::cuda INTERFACE IMPORTED)
set_target_properties(apus::cuda PROPERTIES
  INTERFACE_INCLUDE_DIRECTORIES "${APUS_CUDA_INCLUDE};${APUS_CUDNN_INCLUDE}"
  INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${APUS_CUDA_INCLUDE};${APUS_CUDNN_INCLUDE}")
target_compile_options(apus::cuda INTERFACE
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_80,code=sm_80>"
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_90a,code=sm_90a>"
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_90,code=compute_90>")
# libtorch_cuda registers its kernels when it is loaded: nothing of it need be named for that.
target_link_options(apus::cuda INTERFACE -Wl,--no-as-needed -Wl,--allow-shlib-undefined)
target_link_libraries(apus::cuda INTERFACE
  ${APUS_LIB_torch_cuda} apus::torch ${APUS_LIB_c10_cuda} ${APUS_LIB_cudart} ${APUS_LIB_cudnn} apus::nccl
  ${APUS_LIB_cublasLt} ${APUS_LIB_cublas} ${APUS_LIB_nvrtc})
message(STATUS "apus: with CUDA (${APUS_NVCC}, NCCL ${NCCL_VERSION})")
