#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace apus::train {

/// An event as a reader of event files sees it.
struct ReadEvent {
  double wall_time = 0.0;
  int64_t step = 0;
  std::string file_version;
  bool is_restart = false;
  std::map<std::string, float> scalars;
};

/// A reader of its own, bit by bit from the formats' descriptions; shares nothing with the writer.
class EventReader final {
 public:
  explicit EventReader(std::string_view bytes) : bytes_(bytes) {}

  bool at_end() const { return bytes_.empty(); }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size()) throw std::runtime_error("the bytes end too early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = number<uint8_t>();
      value += uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
  }

  std::string_view text() { return take(varint()); }

 private:
  std::string_view bytes_;
};

/// CRC-32C a bit at a time, masked as in record files.
inline uint32_t slow_masked_crc(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc % 2 != 0 ? crc / 2 ^ 0x82F63B78 : crc / 2;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

inline void read_scalar(std::string_view bytes, ReadEvent& event) {
  EventReader value(bytes);
  std::string tag;
  while (!value.at_end()) {
    const uint64_t key = value.varint();
    if (key == (1 << 3 | 2)) {
      tag = value.text();
    } else if (key == (2 << 3 | 5)) {
      event.scalars[tag] = value.number<float>();
    } else {
      throw std::runtime_error("a value has a field that is not expected");
    }
  }
}

inline ReadEvent read_event(std::string_view bytes) {
  ReadEvent event;
  EventReader fields(bytes);
  while (!fields.at_end()) {
    const uint64_t key = fields.varint();
    if (key == (1 << 3 | 1)) {
      event.wall_time = fields.number<double>();
    } else if (key == (2 << 3 | 0)) {
      event.step = static_cast<int64_t>(fields.varint());
    } else if (key == (3 << 3 | 2)) {
      event.file_version = fields.text();
    } else if (key == (7 << 3 | 2)) {
      event.is_restart = fields.text() == "\x08\x01";
    } else if (key == (5 << 3 | 2)) {
      EventReader summary(fields.text());
      while (!summary.at_end()) {
        if (summary.varint() != (1 << 3 | 2)) throw std::runtime_error("a summary holds no value");
        read_scalar(summary.text(), event);
      }
    } else {
      throw std::runtime_error("an event has a field that is not expected");
    }
  }
  return event;
}

/// All events of a file; throws where a record is damaged.
inline std::vector<ReadEvent> read_events(std::string_view file) {
  std::vector<ReadEvent> events;
  for (EventReader reader(file); !reader.at_end();) {
    const std::string_view length = reader.take(8);
    if (reader.number<uint32_t>() != slow_masked_crc(length)) throw std::runtime_error("a length is damaged");
    const std::string_view bytes = reader.take(EventReader(length).number<uint64_t>());
    if (reader.number<uint32_t>() != slow_masked_crc(bytes)) throw std::runtime_error("an event is damaged");
    events.push_back(read_event(bytes));
  }
  return events;
}

}  // namespace apus::train
