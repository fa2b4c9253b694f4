#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apus/base/api.h"

namespace apus::train {

/// What a kind of accelerator can do, from its data sheet. Rates are per card.
struct APUS_API Card {
  /// As `apus plan --card` takes it, e.g. "A100-40GB".
  std::string name;
  /// Other spellings that are taken.
  std::vector<std::string> aliases;
  /// What nvidia-smi shows as its total, before anything runs.
  int64_t memory_bytes = 0;
  /// Dense bf16 products with fp32 accumulation; 0 = the card has none.
  double bf16_flops = 0.0;
  /// Dense fp32 products (libtorch's default: no TF32).
  double fp32_flops = 0.0;
  /// Share of the peak that large products keep up.
  double sustained = 0.7;
  /// Bytes a second to the card's own memory.
  double memory_bandwidth = 0.0;
  /// Bytes a second in one direction between cards of a host, as a collective sees it.
  double link_bandwidth = 0.0;
  /// Bytes a second in one direction between the card and its host's memory.
  double host_bandwidth = 0.0;
  /// What that link is, e.g. "NVLink 3".
  std::string link;
};

/// Every card that plans are made for, in a fixed order.
APUS_API const std::vector<Card>& known_cards();

/// The card of a name or alias; case and the difference between '-', '_' and ' ' do not count.
/// Throws:  ConfigError listing the known names, with the nearest.
APUS_API Card find_card(std::string_view name);

/// How the cards of a job are joined.
struct APUS_API Cluster {
  /// Cards of a host; ranks beyond it reach each other over the network.
  int cards_per_host = 8;
  /// Bytes a second in one direction that a host's network gives its ranks together: 200 Gbit/s.
  double network_bandwidth = 25e9;
  /// Bytes a second of a host's memory, which its ranks share: two sockets of eight channels DDR4-3200.
  double host_memory_bandwidth = 400e9;
};

}  // namespace apus::train
