#include "apus/data/row_stream.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "apus/base/error.h"
#include "data/byte_source.h"
#include "data/row_scanner.h"

namespace apus::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kChunkBytes = size_t{1} << 18;

struct Refused {
  std::string_view magic;
  const char* what;
};

/// What is recognised, but not read.
constexpr Refused kRefused[] = {
    {"PAR1", "a parquet file is not supported yet; convert it to JSON Lines"},
    {"PK\x03\x04", "a zip archive is not read; unpack it with unzip"},
    {"BZh", "a bzip2 file is not read; unpack it with bunzip2, or pack it with gzip or zstd"},
    {"\xFD"
     "7zXZ",
     "an xz file is not read; unpack it with unxz, or pack it with gzip or zstd"},
    {"\xFF\xFE", "UTF-16 text is not read; convert it with: iconv -f UTF-16 -t UTF-8"},
    {"\xFE\xFF", "UTF-16 text is not read; convert it with: iconv -f UTF-16 -t UTF-8"},
};

/// The magic of a tar archive, and where it stands in it.
constexpr std::string_view kTarMagic = "ustar";
constexpr size_t kTarMagicAt = 257;

/// The file, which must be there and be a regular one.
const std::filesystem::path& existing(const std::filesystem::path& path, std::string_view flag) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    throw ConfigError(detail::concat(
        path.string(), ": no such file; check ", flag, path.is_relative() ? " (working directory: " : "",
        path.is_relative() ? std::filesystem::current_path(error).string() + ")" : ""));
  APUS_CHECK(!std::filesystem::is_directory(status), NotSupported, path.string(), ": ", flag,
             " names a folder; name the files of rows in it");
  APUS_CHECK(std::filesystem::is_regular_file(status), NotSupported, path.string(), ": ", flag,
             " needs a regular file, as rows are read more than once; write what comes from a pipe or device "
             "to a file first");
  return path;
}

RowCompression compression_of(const FileBytes& file) {
  const std::string start = file.beginning(4);
  if (start.starts_with("\x1f\x8b")) return RowCompression::kGzip;
  if (start.starts_with("\x28\xb5\x2f\xfd")) return RowCompression::kZstd;
  return RowCompression::kNone;
}

std::unique_ptr<ByteSource> unpacked(FileBytes& file, RowCompression compression) {
  if (compression == RowCompression::kGzip) return unpack_gzip(file);
  if (compression == RowCompression::kZstd) return unpack_zstd(file);
  return nullptr;
}

/// A name without ".gz" or ".zst".
std::string inner_extension(std::filesystem::path path) {
  if (path.extension() == ".gz" || path.extension() == ".zst") path = path.stem();
  return path.extension().string();
}

}  // namespace

std::string_view RowBlock::text(int64_t index) const {
  const Row& row = rows_[static_cast<size_t>(index)];
  return std::string_view(text_).substr(row.begin, row.end - row.begin);
}

void RowBlock::add(std::string_view text, int64_t line) {
  const size_t begin = text_.size();
  text_.append(text);
  rows_.push_back({begin, text_.size(), line, false});
}

void RowBlock::add_too_long(int64_t line) {
  rows_.push_back({text_.size(), text_.size(), line, true});
}

void RowBlock::clear() {
  text_.clear();
  rows_.clear();
}

struct RowStream::State {
  State(const DatasetSource& source, RowStreamOptions stream_options)
      : options(std::move(stream_options)),
        name(source.path.string()),
        limit(source.limit.value_or(std::numeric_limits<int64_t>::max())),
        file(existing(source.path, options.flag)),
        compression(compression_of(file)),
        unpacker(unpacked(file, compression)),
        chunk(kChunkBytes) {
    refill();
    refuse_others(source.path);
    const int64_t first_line = skip_to_text();
    layout = !rest.empty() && rest.front() == '[' ? RowLayout::kArray : RowLayout::kLines;
    const RowScannerOptions scan{name, first_line, options.block_bytes, options.max_row_bytes};
    scanner = layout == RowLayout::kArray ? make_array_scanner(scan) : make_line_scanner(scan);
    if (rest.empty()) done = true;
  }

  /// Reads the next piece of text; false at the end. What came before an error is delivered before it.
  bool refill() {
    if (read_error) std::rethrow_exception(std::exchange(read_error, nullptr));
    ByteSource& source = unpacker ? *unpacker : file;
    size_t filled = 0;
    try {
      while (filled < chunk.size()) {
        const size_t count = source.read(std::span(chunk).subspan(filled));
        if (count == 0) break;
        filled += count;
      }
    } catch (const Error&) {
      if (filled == 0) throw;
      read_error = std::current_exception();
    }
    rest = {chunk.data(), filled};
    return filled > 0;
  }

  void refuse_others(const std::filesystem::path& path) const {
    for (const Refused& refused : kRefused)
      APUS_CHECK(!rest.starts_with(refused.magic), NotSupported, name, ": ", refused.what);
    APUS_CHECK(rest.size() <= kTarMagicAt || !rest.substr(kTarMagicAt).starts_with(kTarMagic), NotSupported,
               name, ": a tar archive is not read; unpack it with tar -xf");
    const size_t start = rest.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    const bool is_json = start != std::string_view::npos && (rest[start] == '{' || rest[start] == '[');
    const std::string extension = inner_extension(path);
    APUS_CHECK(is_json || (extension != ".csv" && extension != ".tsv"), NotSupported, name,
               ": a csv file is not supported yet; convert it to JSON Lines");
  }

  /// Passes over a byte order mark and blank lines; returns the line of what follows.
  int64_t skip_to_text() {
    int64_t line = 1;
    if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
    do {
      const size_t start = std::min(rest.find_first_not_of(" \t\r\n"), rest.size());
      line += std::ranges::count(rest.substr(0, start), '\n');
      rest.remove_prefix(start);
    } while (rest.empty() && refill());
    return line;
  }

  void fill(RowBlock& block) {
    const int64_t most = limit - rows;
    while (block.size() < most && block.bytes() < options.block_bytes) {
      if (rest.empty() && !refill()) {
        done = true;
        return scanner->finish(block);
      }
      rest.remove_prefix(scanner->feed(rest, most, block));
    }
    done = block.size() >= most;
  }

  RowStreamOptions options;
  std::string name;
  int64_t limit;
  FileBytes file;
  RowCompression compression;
  std::unique_ptr<ByteSource> unpacker;
  std::vector<char> chunk;
  std::string_view rest;
  RowLayout layout = RowLayout::kLines;
  std::unique_ptr<RowScanner> scanner;
  int64_t rows = 0;
  bool done = false;
  std::exception_ptr read_error;  // thrown by the next refill
  std::exception_ptr error;       // thrown by the next call of next
};

RowStream::RowStream(const DatasetSource& source, RowStreamOptions options)
    : state_(std::make_unique<State>(source, std::move(options))) {}
RowStream::~RowStream() = default;
RowStream::RowStream(RowStream&& other) noexcept = default;
RowStream& RowStream::operator=(RowStream&& other) noexcept = default;

bool RowStream::next(RowBlock& block) {
  block.clear();
  if (state_->error) std::rethrow_exception(std::exchange(state_->error, nullptr));
  if (state_->done) return false;
  try {
    state_->fill(block);
  } catch (const Error&) {
    state_->done = true;
    if (block.size() == 0) throw;
    state_->error = std::current_exception();  // comes after the rows before it
  }
  state_->rows += block.size();
  return block.size() > 0;
}

const std::string& RowStream::name() const {
  return state_->name;
}
int64_t RowStream::rows() const {
  return state_->rows;
}
int64_t RowStream::read_bytes() const {
  return state_->file.position();
}
int64_t RowStream::file_bytes() const {
  return state_->file.size();
}
RowLayout RowStream::layout() const {
  return state_->layout;
}
RowCompression RowStream::compression() const {
  return state_->compression;
}

}  // namespace apus::data
