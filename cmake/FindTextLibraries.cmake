# Finds PCRE2 (8 bit), utf8proc, zlib and zstd, and defines apus::pcre2, apus::utf8proc, apus::zlib and apus::zstd.
foreach(_pair pcre2=pcre2-8 utf8proc=utf8proc zlib=z zstd=zstd)
  string(REPLACE "=" ";" _pair ${_pair})
  list(GET _pair 0 _target)
  list(GET _pair 1 _name)
  find_library(TextLibraries_${_target} ${_name})
  if(TextLibraries_${_target} AND NOT TARGET apus::${_target})
    add_library(apus::${_target} UNKNOWN IMPORTED)
    set_target_properties(apus::${_target} PROPERTIES IMPORTED_LOCATION ${TextLibraries_${_target}})
  endif()
endforeach()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TextLibraries
  REQUIRED_VARS TextLibraries_pcre2 TextLibraries_utf8proc TextLibraries_zlib TextLibraries_zstd
  REASON_FAILURE_MESSAGE
    "install libpcre2-dev, libutf8proc-dev, zlib1g-dev and libzstd-dev (cmake/bootstrap.sh does)")
