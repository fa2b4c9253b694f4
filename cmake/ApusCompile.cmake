# Compile options that every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

find_program(APUS_CCACHE ccache)
if(APUS_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${APUS_CCACHE})
endif()
find_program(APUS_MOLD mold)

add_library(apus_options INTERFACE)
target_compile_options(apus_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-unused-parameter;-Wno-missing-field-initializers>")
target_include_directories(apus_options INTERFACE
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/src>)
if(APUS_MOLD)
  target_link_options(apus_options INTERFACE -fuse-ld=mold)
endif()
foreach(sanitizer IN LISTS APUS_SANITIZE)
  target_compile_options(apus_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${sanitizer};-fno-omit-frame-pointer;-g1>")
  target_link_options(apus_options INTERFACE -fsanitize=${sanitizer})
endforeach()
