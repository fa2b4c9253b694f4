#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace apus::layering {

// One #include of a file. `path` is the file from the root of the repository, e.g. "src/comm/store.cpp".
struct Include {
  std::string path;
  int line = 0;
  std::string target;
};

// The includes of one text; those in comments do not count.
std::vector<Include> includes_of(const std::string& path, std::string_view text);

// The includes of every C++ and CUDA file under include/ and src/ of a repository.
std::vector<Include> collect_includes(const std::filesystem::path& root);

// The layer of a file, "" if it is in none: "src/comm/store.cpp" and "include/apus/comm/store.h" give "comm".
std::string layer_of(std::string_view path);

// The layer that an include leads to, "" for a header from outside: "apus/comm/store.h" and "comm/ring.h"
// give "comm".
std::string layer_of_target(std::string_view target);

// Why an include breaks the order of layers; "" if it does not.
std::string order_fault(const Include& include);

// Why an include brings a library where it does not belong; "" if it does not.
std::string dependency_fault(const Include& include);

// The chains of includes by which files that must be free of torch (base, launch, the text files of data)
// reach a torch header, directly or through other headers of apus.
std::vector<std::string> torch_faults(const std::vector<Include>& includes);

}  // namespace apus::layering
