# Finds NCCL (nccl.h, libnccl), in NCCL_ROOT or beside the CUDA toolkit. Defines the imported target apus::nccl.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS /usr/local/cuda/include)
find_library(NCCL_LIBRARY nccl HINTS /usr/local/cuda/lib64)

set(NCCL_VERSION "")
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h _lines REGEX "define NCCL_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  string(REPLACE ";" "." NCCL_VERSION "${_numbers}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL
  REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION
  REASON_FAILURE_MESSAGE "install libnccl-dev, or set NCCL_ROOT")

if(NCCL_FOUND AND NOT TARGET apus::nccl)
  add_library(apus::nccl SHARED IMPORTED)
  set_target_properties(apus::nccl PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
