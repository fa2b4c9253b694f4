#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace apus::train {

/// The protobuf `Event` that opens a file: version 2 of the format.
std::string encode_version(double wall_seconds);

/// The mark of a restart: readers forget what they have from `step` on.
std::string encode_restart(double wall_seconds, int64_t step);

/// One event with a `Summary` value for each number.
std::string encode_scalars(double wall_seconds, int64_t step,
                           const std::vector<std::pair<std::string, double>>& values);

/// The event as a record of a file: length, its masked CRC-32C, bytes, their masked CRC-32C.
std::string framed(std::string_view event);

/// The step of an event; 0 where it has none, nothing where the bytes are no event.
std::optional<int64_t> step_of_event(std::string_view event);

/// How much of a file's beginning holds whole records of steps up to `last_step`.
uint64_t kept_bytes(std::string_view file, int64_t last_step);

}  // namespace apus::train
