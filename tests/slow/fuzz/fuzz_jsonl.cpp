#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "apus/base/json.h"
#include "apus/data/columns.h"
#include "apus/data/conversation.h"
#include "apus/data/data_task.h"
#include "apus/data/dpo_rows_json.h"
#include "apus/data/row_stream.h"
#include "tests/slow/fuzz/fuzz_input.h"

// A data file: JSON Lines or an array, plain or packed; then each row as each shape of row.

namespace {

using namespace apus::data;
using apus::fuzz::require;
using apus::fuzz::taken;

/// The one file that the inputs are written to; it lies in memory.
class InputFile final {
 public:
  InputFile() : file_(memfd_create("apus_fuzz_jsonl", 0)) { require(file_ >= 0); }

  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(file_); }

  void write(const uint8_t* data, size_t size) const {
    require(ftruncate(file_, 0) == 0 && pwrite(file_, data, size, 0) == static_cast<ssize_t>(size));
  }

 private:
  int file_;
};

const InputFile& input_file() {
  static const InputFile file;
  return file;
}

const ColumnMap& renamed() {
  static const ColumnMap columns = ColumnMap::parse(R"({"question": "query", "chosen": "rejected"})");
  return columns;
}

void read_row(std::string_view text) {
  taken([&] { parse_dpo_example(text); });
  taken([&] { parse_dpo_example(text, renamed()); });
  taken([&] {
    const auto conversation = make_conversation(apus::parse_ordered_json(text, "fuzz"));
    require(conversation.weights.size() == conversation.messages.size());
    require(!conversation.text || conversation.messages.empty());
  });
  taken([&] { task_of_row(apus::parse_ordered_json(text, "fuzz")); });
}

/// Small blocks, so that rows cross their borders; what comes out must not depend on them.
int64_t read_stream(int64_t block_bytes) {
  int64_t bytes = 0;
  taken([&] {
    RowStream stream({input_file().path()}, {.block_bytes = block_bytes, .max_row_bytes = 1 << 20});
    RowBlock block;
    int64_t line = 0;
    while (stream.next(block)) {
      require(block.size() > 0);
      for (int64_t i = 0; i < block.size(); ++i) {
        require(block.line(i) >= line);
        line = block.line(i);
        bytes += static_cast<int64_t>(block.text(i).size());
        if (block_bytes > 1) read_row(block.text(i));
      }
    }
  });
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  input_file().write(data, size);
  require(read_stream(1) == read_stream(1 << 16));
  return 0;
}
