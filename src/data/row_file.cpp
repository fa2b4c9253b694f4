// A file of rows: header, records, index, description, trailer. All numbers are little-endian;
// docs/design/data.md has the layout.
#include "data/row_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "data/byte_source.h"

namespace apus::data {
namespace {

static_assert(std::endian::native == std::endian::little, "files of rows are mapped as they are");

constexpr std::array<char, 8> kMagic = {'A', 'P', 'U', 'S', 'R', 'O', 'W', 'S'};

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kRowFileVersion;
  uint32_t kind = 0;
};
static_assert(sizeof(Header) == 16);

struct Trailer {
  uint64_t record_bytes = 0;
  uint64_t rows = 0;
  uint64_t description_bytes = 0;
  uint64_t records_hash = 0;
  uint64_t index_hash = 0;
  uint64_t description_hash = 0;
  Header header = {};
  uint64_t check = 0;  // over what stands before it

  uint64_t expected_check() const {
    return Hash64().update(std::as_bytes(std::span(this, 1)).first(sizeof(Trailer) - sizeof(check))).digest();
  }
};
static_assert(sizeof(Trailer) == 72);

class NamedSink final : public RowSink {
 public:
  explicit NamedSink(const std::filesystem::path& path) : writer_(path) {}
  void write(std::span<const std::byte> bytes) override { writer_.write(bytes); }
  MappedFile finish() override {
    writer_.finish();
    return MappedFile(writer_.path());
  }

 private:
  FileWriter writer_;
};

class TemporarySink final : public RowSink {
 public:
  explicit TemporarySink(Logger& logger) : file_(TemporaryFile::anywhere(logger)) {}
  void write(std::span<const std::byte> bytes) override { file_.write(bytes); }
  MappedFile finish() override { return file_.map(); }

 private:
  TemporaryFile file_;
};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw DataError(path.string(), 0, reason);
}

template <typename T>
T load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// The trailer of a file whose parts fill it exactly.
Trailer checked_trailer(const std::filesystem::path& path, std::span<const std::byte> start,
                        std::span<const std::byte> end, uint64_t file_bytes, RowKind kind) {
  const auto header = load<Header>(start);
  if (header.magic != kMagic) refuse(path, "is no file of rows");
  if (header.version != kRowFileVersion)
    refuse(path, detail::concat("has layout version ", header.version, ", this build has ", kRowFileVersion));
  const auto trailer = load<Trailer>(end);
  if (trailer.check != trailer.expected_check()) refuse(path, "was cut short, or its end is damaged");
  if (trailer.header.kind != static_cast<uint32_t>(kind) || header.kind != trailer.header.kind)
    refuse(path, "holds another kind of rows");
  const bool fits = trailer.record_bytes <= file_bytes && trailer.rows <= file_bytes / sizeof(RowEntry) &&
                    trailer.description_bytes <= file_bytes;
  const uint64_t sum = sizeof(Header) + trailer.record_bytes + trailer.rows * sizeof(RowEntry) +
                       trailer.description_bytes + sizeof(Trailer);
  if (!fits || sum != file_bytes || trailer.record_bytes % alignof(RowEntry) != 0)
    refuse(path, detail::concat("has ", file_bytes, " bytes, its parts ", sum));
  return trailer;
}

/// XXH64 over the next bytes of a file.
uint64_t hash_next(FileBytes& file, uint64_t bytes) {
  std::vector<char> buffer(std::min<uint64_t>(bytes, uint64_t{1} << 20));
  Hash64 hash;
  while (bytes > 0) {
    const size_t count = file.read(std::span(buffer).first(std::min<uint64_t>(buffer.size(), bytes)));
    if (count == 0) refuse(file.path(), "was cut short while it was read");
    hash.update(std::string_view(buffer.data(), count));
    bytes -= count;
  }
  return hash.digest();
}

void require_smallest_size(const std::filesystem::path& path, uint64_t bytes) {
  if (bytes < sizeof(Header) + sizeof(Trailer))
    refuse(path, detail::concat("has ", bytes, " bytes and is no file of rows"));
}

}  // namespace

std::unique_ptr<RowSink> named_sink(const std::filesystem::path& path) {
  return std::make_unique<NamedSink>(path);
}

std::unique_ptr<RowSink> temporary_sink(Logger& logger) {
  return std::make_unique<TemporarySink>(logger);
}

RowFileWriter::RowFileWriter(std::unique_ptr<RowSink> sink, RowKind kind, Logger& logger)
    : sink_(std::move(sink)), kind_(kind), index_(TemporaryFile::anywhere(logger)) {
  const Header header{.kind = static_cast<uint32_t>(kind_)};
  sink_->write(std::as_bytes(std::span(&header, 1)));
}

void RowFileWriter::append(const RowRecords& rows) {
  std::vector<RowEntry> entries = rows.entries;
  for (RowEntry& entry : entries) entry.offset += record_bytes_;
  const auto index_bytes = std::as_bytes(std::span(entries));
  index_hash_.update(index_bytes);
  index_.write(index_bytes);
  write(std::as_bytes(std::span(rows.words)));
  rows_ += static_cast<int64_t>(entries.size());
}

void RowFileWriter::write(std::span<const std::byte> bytes) {
  sink_->write(bytes);
  records_hash_.update(bytes);
  record_bytes_ += bytes.size();
}

MappedFile RowFileWriter::finish(std::string_view description) {
  if (record_bytes_ % alignof(RowEntry) != 0) {
    const uint32_t padding = 0;
    write(std::as_bytes(std::span(&padding, 1)));
  }
  const MappedFile index = index_.map();
  sink_->write(index.bytes());
  sink_->write(as_byte_span(description));
  Trailer trailer{.record_bytes = record_bytes_,
                  .rows = static_cast<uint64_t>(rows_),
                  .description_bytes = description.size(),
                  .records_hash = records_hash_.digest(),
                  .index_hash = index_hash_.digest(),
                  .description_hash = hash64(description),
                  .header = {.kind = static_cast<uint32_t>(kind_)}};
  trailer.check = trailer.expected_check();
  sink_->write(std::as_bytes(std::span(&trailer, 1)));
  return sink_->finish();
}

std::shared_ptr<const RowFile> RowFile::open(const std::filesystem::path& path, RowKind kind,
                                             const RowFileCheck& check) {
  FileBytes file(path);
  const auto bytes = static_cast<uint64_t>(file.size());
  require_smallest_size(path, bytes);
  auto whole = std::make_shared<const RowFile>(MappedFile(path), kind);
  const auto trailer = load<Trailer>(whole->file_.bytes().last(sizeof(Trailer)));
  file.skip(sizeof(Header));
  const bool read_records = trailer.record_bytes <= static_cast<uint64_t>(check.most_record_bytes);
  if (!read_records) file.skip(static_cast<int64_t>(trailer.record_bytes));
  if (read_records && hash_next(file, trailer.record_bytes) != trailer.records_hash)
    refuse(path, "is damaged: its rows do not have their checksum");
  if (hash_next(file, trailer.rows * sizeof(RowEntry)) != trailer.index_hash)
    refuse(path, "is damaged: its index does not have its checksum");
  if (hash_next(file, trailer.description_bytes) != trailer.description_hash)
    refuse(path, "is damaged: its description does not have its checksum");
  return whole;
}

RowFile::RowFile(MappedFile file, RowKind kind) : file_(std::move(file)) {
  const std::span<const std::byte> bytes = file_.bytes();
  require_smallest_size(file_.path(), bytes.size());
  const Trailer trailer = checked_trailer(file_.path(), bytes.first(sizeof(Header)),
                                          bytes.last(sizeof(Trailer)), bytes.size(), kind);
  records_ = bytes.subspan(sizeof(Header), trailer.record_bytes);
  const auto index = bytes.subspan(sizeof(Header) + trailer.record_bytes, trailer.rows * sizeof(RowEntry));
  index_ = {reinterpret_cast<const RowEntry*>(index.data()), trailer.rows};
  description_ = {reinterpret_cast<const char*>(index.data() + index.size()), trailer.description_bytes};
}

std::span<const uint32_t> RowFile::record(int64_t row) const {
  const RowEntry& at = entry(row);
  const uint64_t bytes = uint64_t{at.words} * sizeof(uint32_t);
  if (at.offset % sizeof(uint32_t) != 0 || at.offset > records_.size() || bytes > records_.size() - at.offset)
    refuse(name(), detail::concat("row ", row, " lies outside the file"));
  const auto record = records_.subspan(at.offset, bytes);
  if (static_cast<uint32_t>(Hash64().update(record).digest()) != at.check)
    refuse(name(), detail::concat("row ", row, " is damaged: remove the file and start again"));
  return {reinterpret_cast<const uint32_t*>(record.data()), at.words};
}

}  // namespace apus::data
