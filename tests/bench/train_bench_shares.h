#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tests/bench/train_bench_device.h"

namespace apus::bench {

/// What a kernel is for, by its name: gemm, attention, elementwise, loss, optimizer, communication or copy.
std::string kind_of(const DeviceActivity& activity);

/// Shares of the time between the first and the last activity: of each kind, and idle, in which nothing ran.
/// Where streams overlap the shares add up to more than 1. With it the milliseconds a step and the longest
/// kernels.
nlohmann::ordered_json shares_of(std::vector<DeviceActivity> activities, int64_t steps);

}  // namespace apus::bench
