# Finds libtorch without Torch's own CMake package, which overrides architecture flags and asks for CUDA.
#
# Looks in APUS_TORCH_ROOT (cache or environment; a folder with include/ and lib/) and nowhere else if that is
# set; otherwise in APUS_DEFAULT_TORCH_ROOT: .deps/torch, where cmake/bootstrap.sh unpacks the pinned wheel, or,
# in an installed apus, the folder that apus was built with. Defines the imported target apus::torch
# (libtorch_cpu and libc10), LibTorch_VERSION and LibTorch_LIB_DIR.
set(APUS_TORCH_ROOT "$ENV{APUS_TORCH_ROOT}" CACHE PATH "Folder of libtorch: a wheel's torch/, or an unpacked libtorch zip")
if(NOT APUS_DEFAULT_TORCH_ROOT)
  get_filename_component(_apus_top ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
  set(APUS_DEFAULT_TORCH_ROOT ${_apus_top}/.deps/torch)
endif()
if(APUS_TORCH_ROOT)
  set(_torch_root ${APUS_TORCH_ROOT})
else()
  set(_torch_root ${APUS_DEFAULT_TORCH_ROOT})
endif()
find_path(LibTorch_INCLUDE_DIR ATen/core/Tensor.h HINTS ${_torch_root}/include NO_DEFAULT_PATH)
find_library(LibTorch_CPU torch_cpu HINTS ${_torch_root}/lib NO_DEFAULT_PATH)
find_library(LibTorch_C10 c10 HINTS ${_torch_root}/lib NO_DEFAULT_PATH)

set(LibTorch_VERSION "")
foreach(_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT LibTorch_VERSION AND EXISTS ${LibTorch_INCLUDE_DIR}/${_header})
    file(STRINGS ${LibTorch_INCLUDE_DIR}/${_header} _lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
    string(REPLACE ";" "." LibTorch_VERSION "${_numbers}")
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU LibTorch_C10 LibTorch_INCLUDE_DIR VERSION_VAR LibTorch_VERSION HANDLE_VERSION_RANGE
  REASON_FAILURE_MESSAGE "run cmake/bootstrap.sh, or set APUS_TORCH_ROOT to a folder with include/ and lib/ of libtorch 2.11")

if(LibTorch_FOUND)
  get_filename_component(LibTorch_LIB_DIR ${LibTorch_CPU} DIRECTORY)
endif()
if(LibTorch_FOUND AND NOT TARGET apus::torch)
  add_library(apus::c10 SHARED IMPORTED)
  set_target_properties(apus::c10 PROPERTIES IMPORTED_LOCATION ${LibTorch_C10})
  add_library(apus::torch SHARED IMPORTED)
  set_target_properties(apus::torch PROPERTIES
    IMPORTED_LOCATION ${LibTorch_CPU}
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "AT_PER_OPERATOR_HEADERS;USE_C10D_GLOO"
    INTERFACE_LINK_LIBRARIES apus::c10)
  target_link_options(apus::torch INTERFACE -Wl,--allow-shlib-undefined -Wl,-rpath,${LibTorch_LIB_DIR})
endif()
