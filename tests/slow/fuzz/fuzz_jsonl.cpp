#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "apus/data/dpo_rows_json.h"
#include "apus/data/jsonl.h"
#include "tests/slow/fuzz/fuzz_input.h"

// A data file: JSON Lines, or whatever else the reader recognises; then each row as each shape of row.

namespace {

/// The one file that the inputs are written to.
const std::filesystem::path& input_file() {
  static const auto path =
      std::filesystem::temp_directory_path() / ("apus_fuzz_jsonl_" + std::to_string(getpid()));
  return path;
}

void read_rows(const apus::data::JsonlFile& file) {
  apus::fuzz::require(file.used_bytes().size() <= std::filesystem::file_size(input_file()));
  for (int64_t i = 0; i < file.size(); ++i) {
    apus::fuzz::require(file.line(i) > (i == 0 ? 0 : file.line(i - 1)));
    apus::fuzz::taken([&] { apus::data::parse_dpo_example(file.row(i)); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::ofstream(input_file(), std::ios::binary).write(reinterpret_cast<const char*>(data), size);
  apus::fuzz::taken([] { read_rows(apus::data::JsonlFile({input_file()})); });
  return 0;
}
