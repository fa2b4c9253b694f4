#pragma once

#include <exception>
#include <filesystem>
#include <string>
#include <string_view>

namespace apus {

// A folder of its own for one test, removed at the end.
class ScratchFolder final {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  // Creates a file with these bytes and returns its path.
  std::filesystem::path put(std::string_view name, std::string_view bytes) const;
  // Number of entries in the folder.
  int size() const;

 private:
  std::filesystem::path path_;
};

// The message of the error that `action` throws; "" if it throws none, "another type" for another type.
template <typename ErrorType, typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const ErrorType& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another type: ") + error.what();
  }
  return "";
}

}  // namespace apus
