# Finds PCRE2 (8 bit) and utf8proc, and defines apus::pcre2 and apus::utf8proc.
foreach(_name pcre2-8 utf8proc)
  string(REPLACE "-8" "" _target ${_name})
  find_library(TextLibraries_${_target} ${_name})
  if(TextLibraries_${_target} AND NOT TARGET apus::${_target})
    add_library(apus::${_target} UNKNOWN IMPORTED)
    set_target_properties(apus::${_target} PROPERTIES IMPORTED_LOCATION ${TextLibraries_${_target}})
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TextLibraries REQUIRED_VARS TextLibraries_pcre2 TextLibraries_utf8proc
  REASON_FAILURE_MESSAGE "install libpcre2-dev and libutf8proc-dev (cmake/bootstrap.sh does)")
