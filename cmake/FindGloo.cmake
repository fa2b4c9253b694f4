# Finds the headers of gloo (Debian's libgloo-dev). The library itself is never linked:
# c10d's ProcessGroupGloo comes out of libtorch_cpu, only its declarations need gloo's headers.
find_path(Gloo_INCLUDE_DIR gloo/context.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gloo REQUIRED_VARS Gloo_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "install libgloo-dev (cmake/bootstrap.sh does)")
