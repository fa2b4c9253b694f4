#include "apus/train/reference_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "apus/base/error.h"
#include "apus/base/file.h"
#include "apus/base/hash.h"
#include "apus/base/join_words.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic{"APUSREF\0", 8};
constexpr uint32_t kVersion = 1;
constexpr const char* kExtension = ".reference";
constexpr size_t kRowBytes = sizeof(uint64_t) + 2 * sizeof(float);

/// How a file begins.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t key_bytes;
  uint64_t rows;
};
static_assert(sizeof(Header) == 24);

template <typename Value>
void append(std::string& bytes, const std::vector<Value>& values) {
  if (!values.empty())
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value));
}

/// Takes values off the front.
template <typename Value>
std::vector<Value> take(std::string_view& bytes, size_t count) {
  std::vector<Value> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), count * sizeof(Value));
  bytes.remove_prefix(count * sizeof(Value));
  return values;
}

/// The header of whole bytes; nothing if they are of another kind or cut short.
std::optional<Header> header_of(std::string_view bytes) {
  Header header{};
  if (bytes.size() < sizeof(Header) + sizeof(uint64_t)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(Header));
  const size_t body = bytes.size() - sizeof(Header) - sizeof(uint64_t);
  if (std::string_view(header.magic, 8) != kMagic || header.version != kVersion) return std::nullopt;
  if (header.key_bytes > body || (body - header.key_bytes) % kRowBytes != 0) return std::nullopt;
  if ((body - header.key_bytes) / kRowBytes != header.rows) return std::nullopt;
  return header;
}

/// The key of a file, without reading its rows; empty if it has none.
std::string key_text_of(const fs::path& path) {
  const MappedFile file(path);
  const auto header = header_of(file.text());
  return header ? std::string(file.text().substr(sizeof(Header), header->key_bytes)) : std::string();
}

/// A text of a JSON object, whatever else may stand there.
std::string text_in(const nlohmann::json& json, const std::string& name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "?";
}

/// Which fields of a key another file has otherwise; nothing if it is of another part of the data.
std::optional<std::vector<std::string>> differences(const ReferenceKey& key, const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || text_in(json, "part") != key.part) return std::nullopt;
  std::vector<std::string> found;
  for (const auto& [name, value] : key.fields()) {
    const std::string had = text_in(json, name);
    if (had != value) found.push_back(detail::concat(name, " (", had, ", now ", value, ")"));
  }
  return found;
}

/// Pieces of a file that tell it from another: all of a small one.
void add_file(Hash64& hash, const fs::path& path) {
  constexpr size_t kHead = size_t{64} << 10, kPiece = size_t{4} << 10, kPieces = 1024;
  const MappedFile file(path);
  const auto bytes = file.bytes();
  hash.update(path.filename().string() + "|" + std::to_string(bytes.size()) + "|");
  if (bytes.size() <= kHead + kPiece * kPieces) {
    hash.update(bytes);
    return;
  }
  hash.update(bytes.first(kHead));
  for (size_t piece = 0; piece < kPieces; ++piece) {
    const size_t begin = (bytes.size() - kPiece) / (kPieces - 1) * piece;
    hash.update(bytes.subspan(begin, kPiece));
  }
  hash.update(bytes.last(kPiece));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ReferenceKey::fields() const {
  return {{"model", model},
          {"adapter", adapter},
          {"dtype", dtype},
          {"quantisation", quantisation},
          {"attention", attention},
          {"rope", rope},
          {"max_length", max_length},
          {"truncation", truncation},
          {"chat_template", chat_template},
          {"tokenizer", tokenizer},
          {"part", part},
          {"ld_alpha", ld_alpha},
          {"data", data},
          {"library", library}};
}

std::string ReferenceKey::text() const {
  nlohmann::ordered_json json;
  for (const auto& [name, value] : fields()) json[name] = value;
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ReferenceTable::encode(const std::string& key_text) const {
  Header header{.magic = {},
                .version = kVersion,
                .key_bytes = static_cast<uint32_t>(key_text.size()),
                .rows = row_hashes.size()};
  std::memcpy(header.magic, kMagic.data(), kMagic.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(Header));
  bytes += key_text;
  append(bytes, row_hashes);
  append(bytes, chosen);
  append(bytes, rejected);
  append(bytes, std::vector<uint64_t>{hash64(bytes)});
  return bytes;
}

ReferenceFile ReferenceFile::decode(std::string_view bytes, const std::string& source) {
  const auto header = header_of(bytes);
  if (!header)
    throw DataError(source, 0, "is no whole file of reference log-probabilities of this version; remove it");
  std::string_view tail = bytes.substr(bytes.size() - sizeof(uint64_t));
  const std::string_view hashed = bytes.substr(0, bytes.size() - sizeof(uint64_t));
  if (take<uint64_t>(tail, 1)[0] != hash64(hashed))
    throw DataError(source, 0, "reference log-probabilities are damaged (XXH64 differs); remove it");
  std::string_view rest = hashed.substr(sizeof(Header));
  ReferenceFile file{.key_text = std::string(rest.substr(0, header->key_bytes)), .table = {}};
  rest.remove_prefix(header->key_bytes);
  file.table.row_hashes = take<uint64_t>(rest, header->rows);
  file.table.chosen = take<float>(rest, header->rows);
  file.table.rejected = take<float>(rest, header->rows);
  return file;
}

ReferenceCache::ReferenceCache(fs::path folder) : folder_(std::move(folder)) {
  ensure_directory(folder_);
}

fs::path ReferenceCache::path(const ReferenceKey& key) const {
  return folder_ / ("dpo-" + sha256_hex(key.text()).substr(0, 32) + kExtension);
}

std::optional<ReferenceTable> ReferenceCache::find(const ReferenceKey& key, Logger& logger) const {
  std::error_code error;
  const fs::path file = path(key);
  if (!fs::exists(file, error)) return std::nullopt;
  try {
    ReferenceFile found = ReferenceFile::decode(read_file(file), file.string());
    if (found.key_text != key.text()) throw DataError(file.string(), 0, "is the entry of another key");
    return std::move(found.table);
  } catch (const DataError& damage) {
    logger.warning(std::string("cached reference log-probabilities cannot be used and are computed anew: ") +
                   damage.what());
    return std::nullopt;
  }
}

void ReferenceCache::store(const ReferenceKey& key, const ReferenceTable& table) const {
  write_file_atomic(path(key), table.encode(key.text()));
}

std::string ReferenceCache::difference(const ReferenceKey& key) const {
  std::vector<std::string> nearest;
  std::error_code error;
  for (const auto& each : fs::directory_iterator(folder_, error)) {
    if (each.path().extension() != kExtension || each.path() == path(key)) continue;
    try {
      const auto found = differences(key, key_text_of(each.path()));
      if (found && (nearest.empty() || found->size() < nearest.size())) nearest = *found;
    } catch (const FileError&) {
      continue;  // removed meanwhile
    }
  }
  return join_words(nearest);
}

std::string model_fingerprint(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& each : fs::directory_iterator(folder)) {
    if (each.path().extension() == ".safetensors") files.push_back(each.path());
  }
  std::ranges::sort(files);
  Hash64 hash;
  hash.update(read_file(folder / "config.json"));
  for (const fs::path& file : files) add_file(hash, file);
  return to_hex(hash.digest());
}

std::string adapter_fingerprint(const fs::path& folder) {
  Hash64 hash;
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    const std::string text = read_file(folder / name);
    hash.update(std::to_string(text.size()) + ";").update(text);
  }
  return to_hex(hash.digest());
}

}  // namespace apus::train
