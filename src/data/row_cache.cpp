#include "data/row_cache.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include "apus/base/clock.h"
#include "apus/base/log.h"

namespace apus::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".rows";
constexpr std::string_view kTemporary = ".rows.tmp-";
/// A writer adds to its file all the time; one untouched for so long has none any more.
constexpr auto kAbandonedAfter = std::chrono::hours(24);

struct Entry {
  fs::path path;
  fs::file_time_type used;
  int64_t bytes = 0;
};

/// Whole entries of a folder, least recently used first; what other processes remove meanwhile is left out.
std::vector<Entry> entries_of(const fs::path& folder) {
  std::vector<Entry> entries;
  std::error_code error;
  for (const auto& each : fs::directory_iterator(folder, error)) {
    if (each.path().extension() != kExtension) continue;
    const auto bytes = each.file_size(error);
    if (error) continue;
    const auto used = each.last_write_time(error);
    if (!error) entries.push_back({each.path(), used, static_cast<int64_t>(bytes)});
  }
  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::pair(entry.used, entry.path); });
  return entries;
}

void remove_abandoned(const fs::path& folder) {
  const auto now = fs::file_time_type::clock::now();
  std::error_code error;
  for (const auto& each : fs::directory_iterator(folder, error)) {
    if (each.path().filename().string().find(kTemporary) == std::string::npos) continue;
    const auto touched = each.last_write_time(error);
    if (!error && now - touched > kAbandonedAfter) fs::remove(each.path(), error);
  }
}

}  // namespace

std::string key_in_description(std::string_view description) {
  const auto json = nlohmann::json::parse(description, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("key") ? text_of_key(json["key"]) : std::string();
}

RowCache::RowCache(RowCacheOptions options, const RowCacheKey& key, RowKind kind)
    : options_(std::move(options)),
      key_text_(text_of_key(key)),
      kind_(kind),
      path_(options_.folder / entry_name(key)) {
  ensure_directory(options_.folder);
}

std::shared_ptr<const RowFile> RowCache::find(Logger& logger) const {
  std::error_code error;
  if (!fs::exists(path_, error)) return nullptr;
  try {
    auto file = RowFile::open(path_, kind_);
    if (key_in_description(file->description()) != key_text_)
      throw DataError(path_.string(), 0, "is the entry of another key");
    fs::last_write_time(path_, fs::file_time_type::clock::now(), error);  // for evict; may be refused
    return file;
  } catch (const DataError& damage) {
    logger.warning(std::string("cached rows cannot be used and are prepared anew: ") + damage.what());
    return nullptr;
  }
}

std::unique_ptr<FileLock> RowCache::lock(const Clock& clock, Logger& logger) const {
  constexpr auto kFirst = std::chrono::seconds(5);
  constexpr auto kAgain = std::chrono::seconds(60);
  const fs::path lock = path_.string() + ".lock";
  const Clock::Duration start = clock.steady_now();
  Clock::Duration next = kFirst;
  return std::make_unique<FileLock>(lock, [&] {
    const Clock::Duration waited = clock.steady_now() - start;
    if (waited < next) return;
    next = waited + kAgain;
    logger.info("waiting since " +
                std::to_string(std::chrono::duration_cast<std::chrono::seconds>(waited).count()) +
                " s for another process that prepares the same rows (lock " + lock.string() + ")");
  });
}

void RowCache::remove_leftovers() const {
  const std::string start = path_.filename().string() + ".tmp-";
  std::error_code error;
  for (const auto& each : fs::directory_iterator(options_.folder, error))
    if (each.path().filename().string().starts_with(start)) fs::remove(each.path(), error);
}

void RowCache::evict(Logger& logger) const {
  remove_abandoned(options_.folder);
  std::vector<Entry> entries = entries_of(options_.folder);
  int64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes;
  for (const Entry& entry : entries) {
    if (bytes <= options_.max_bytes) return;
    if (entry.path == path_) continue;
    std::error_code error;
    if (fs::remove(entry.path, error))
      logger.info("removed cached rows that were not used for long: " + entry.path.string());
    bytes -= entry.bytes;
  }
}

}  // namespace apus::data
