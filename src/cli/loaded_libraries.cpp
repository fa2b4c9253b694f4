#include "cli/loaded_libraries.h"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <torch/headeronly/version.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "apus/base/error.h"

namespace apus::cli {
namespace {

/// Major and minor version of "9.19.0" or "2.11.0+cu130".
std::optional<std::pair<int, int>> version_of(std::string_view text) {
  std::pair<int, int> version;
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, version.first);
  if (error != std::errc() || dot == end || *dot != '.') return std::nullopt;
  return std::from_chars(dot + 1, end, version.second).ec == std::errc() ? std::optional(version)
                                                                         : std::nullopt;
}

/// "2.11.0" of "..., TORCH_VERSION=2.11.0, ..."; empty if libtorch does not say.
std::string torch_version(std::string_view settings) {
  constexpr std::string_view kKey = "TORCH_VERSION=";
  const size_t key = settings.find(kKey);
  if (key == settings.npos) return "";
  const size_t begin = key + kKey.size();
  return std::string(settings.substr(begin, settings.find_first_of(", \n", begin) - begin));
}

bool serves(const LoadedLibrary& library) {
  const auto built = version_of(library.built), loaded = version_of(library.loaded);
  if (!built || !loaded) return true;  // nothing is known against it
  return built->first == loaded->first && built->second <= loaded->second;
}

}  // namespace

std::vector<LoadedLibrary> loaded_libraries() {
  std::vector<LoadedLibrary> libraries{{.name = "libtorch",
                                        .built = TORCH_VERSION,
                                        .loaded = torch_version(at::show_config()),
                                        .path = file_of_symbol("_ZN2at11show_configB5cxx11Ev")}};
  for (LoadedLibrary& library : cuda::gpu_libraries()) libraries.push_back(std::move(library));
  return libraries;
}

std::string library_fault(const std::vector<LoadedLibrary>& libraries) {
  for (const LoadedLibrary& library : libraries) {
    if (serves(library)) continue;
    const std::string from = library.path.empty() ? "" : " from " + library.path;
    return detail::concat(library.name, " ", library.loaded, " is loaded", from,
                          ", but this apus was built with ", library.built,
                          " and needs that or a later one of the same major version; take the other copy's "
                          "folder out of LD_LIBRARY_PATH, or put the folder of the right one first");
  }
  return "";
}

DeviceRequirement requirement_of_runtime(int version) {
  const int major = version / 1000;
  if (major == 12) return {.cuda_version = 12000, .driver_release = "525"};
  return major == 0 ? DeviceRequirement() : DeviceRequirement{.cuda_version = 1000 * major};
}

DeviceRequirement device_requirement() {
  return requirement_of_runtime(cuda::runtime_version());
}

std::string file_of_symbol(const char* name) {
  void* const address = ::dlsym(RTLD_DEFAULT, name);
  Dl_info info = {};
  if (address == nullptr || ::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace apus::cli
