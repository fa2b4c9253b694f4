#include "train/event_record.h"

#include <bit>
#include <cstring>

#include "apus/base/crc32c.h"
#include "apus/base/hash.h"

namespace apus::train {
namespace {

/// Protobuf's wire types.
enum class Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// Fields of Event, Summary, Summary.Value and SessionLog.
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr uint32_t kValue = 1, kTag = 1, kSimpleValue = 2, kStatus = 1;
constexpr uint64_t kStart = 1;

constexpr size_t kHeaderBytes = 12, kFooterBytes = 4;

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_key(std::string& out, uint32_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<uint32_t>(wire));
}

/// Little endian, as protobuf and the record format want it.
template <typename T>
void put_raw(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  put_key(out, field, Wire::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string event_at(double wall_seconds, int64_t step) {
  std::string event;
  put_key(event, kWallTime, Wire::kFixed64);
  put_raw(event, wall_seconds);
  if (step != 0) {
    put_key(event, kStep, Wire::kVarint);
    put_varint(event, static_cast<uint64_t>(step));
  }
  return event;
}

uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(as_byte_span(bytes)), 15) + 0xA282EAD8u;
}

template <typename T>
T raw_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// Takes a varint off the beginning.
std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

/// Bytes of a field's content; nothing for a type that events do not have.
std::optional<uint64_t> content_bytes(Wire wire, std::string_view& bytes) {
  if (wire == Wire::kFixed64) return 8;
  if (wire == Wire::kFixed32) return 4;
  if (wire == Wire::kBytes) return take_varint(bytes);
  return std::nullopt;
}

/// The event of the whole and undamaged record at `at`; nothing if there is none.
std::optional<std::string_view> event_at_offset(std::string_view file, uint64_t at) {
  if (file.size() - at < kHeaderBytes + kFooterBytes) return std::nullopt;
  const auto length = raw_at<uint64_t>(file, at);
  if (raw_at<uint32_t>(file, at + 8) != masked_crc(file.substr(at, 8))) return std::nullopt;
  if (length > file.size() - at - kHeaderBytes - kFooterBytes) return std::nullopt;
  const std::string_view event = file.substr(at + kHeaderBytes, length);
  if (raw_at<uint32_t>(file, at + kHeaderBytes + length) != masked_crc(event)) return std::nullopt;
  return event;
}

}  // namespace

std::string encode_version(double wall_seconds) {
  std::string event = event_at(wall_seconds, 0);
  put_bytes(event, kFileVersion, "brain.Event:2");
  return event;
}

std::string encode_restart(double wall_seconds, int64_t step) {
  std::string log;
  put_key(log, kStatus, Wire::kVarint);
  put_varint(log, kStart);
  std::string event = event_at(wall_seconds, step);
  put_bytes(event, kSessionLog, log);
  return event;
}

std::string encode_scalars(double wall_seconds, int64_t step,
                           const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    put_bytes(value, kTag, tag);
    put_key(value, kSimpleValue, Wire::kFixed32);
    put_raw(value, static_cast<float>(number));
    put_bytes(summary, kValue, value);
  }
  std::string event = event_at(wall_seconds, step);
  put_bytes(event, kSummary, summary);
  return event;
}

std::string framed(std::string_view event) {
  std::string record;
  put_raw(record, static_cast<uint64_t>(event.size()));
  put_raw(record, masked_crc(record));
  record += event;
  put_raw(record, masked_crc(event));
  return record;
}

std::optional<int64_t> step_of_event(std::string_view event) {
  int64_t step = 0;
  while (!event.empty()) {
    const auto key = take_varint(event);
    if (!key) return std::nullopt;
    const auto wire = static_cast<Wire>(*key & 7);
    if (wire == Wire::kVarint) {
      const auto value = take_varint(event);
      if (!value) return std::nullopt;
      if (*key >> 3 == kStep) step = static_cast<int64_t>(*value);
      continue;
    }
    const auto count = content_bytes(wire, event);
    if (!count || *count > event.size()) return std::nullopt;
    event.remove_prefix(*count);
  }
  return step;
}

uint64_t kept_bytes(std::string_view file, int64_t last_step) {
  uint64_t kept = 0;
  while (const auto event = event_at_offset(file, kept)) {
    const auto step = step_of_event(*event);
    if (!step || *step > last_step) break;
    kept += kHeaderBytes + event->size() + kFooterBytes;
  }
  return kept;
}

}  // namespace apus::train
