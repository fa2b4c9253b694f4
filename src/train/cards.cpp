#include "apus/train/cards.h"

#include <cctype>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/nearest_name.h"

namespace apus::train {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

/// Lower case, without what people write differently.
std::string plain(std::string_view name) {
  std::string text;
  for (const char letter : name) {
    if (letter == '-' || letter == '_' || letter == ' ') continue;
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return text;
}

// Peak rates, memory and links are those of NVIDIA's public data sheets: A100 (2021), H100 and H200 (2023,
// 2024), A10, L4, L40S (their product briefs), GeForce RTX 3090 and 4090 (Ampere GA102 and Ada white
// papers; dense bf16 with fp32 accumulation, which is half of the fp16-accumulation rate on GeForce).
// memory_bytes is what nvidia-smi shows. NVLink rates are per direction: half of the sheet's total; PCIe 4
// x16 and 5 x16 carry about 25 and 50 GB/s of payload. `sustained` is what large bf16 GEMMs reach: H200
// measured here (620 to 660 of 989 TF/s at its power cap); the rest from public GEMM benchmarks of cuBLAS,
// rounded down.

/// A card's link to its neighbours, and its bus to the host: cards with NVLink 3 and 4 have PCIe 4 and 5.
struct Link {
  double gigabytes = 0.0;
  const char* name = "";
  double host_gigabytes = 0.0;
};
constexpr Link kNvlink3{300, "NVLink 3", 25}, kNvlink4{450, "NVLink 4", 50}, kPcie5{50, "PCIe 5 x16", 50};
constexpr Link kPcie4x8{12.5, "PCIe 4 x8", 12.5}, kPcie4{25, "PCIe 4 x16", 25};
constexpr Link kNoPeer{20, "PCIe 4 x16 without peer access", 25};

/// A row of the table: MiB, TF/s in bf16 and fp32, share of the peak, GB/s.
struct Row {
  const char* name = "";
  int64_t mebibytes = 0;
  double bf16 = 0.0, fp32 = 0.0, sustained = 0.0, bandwidth = 0.0;
  Link link;
  std::vector<std::string> aliases = {};
};

// clang-format off
std::vector<Row> rows() {
  return {
      {"A100-40GB", 40960, 312, 19.5, 0.75, 1555, kNvlink3, {"A100", "A100-SXM4-40GB", "A100-SXM-40GB"}},
      {"A100-80GB", 81920, 312, 19.5, 0.75, 2039, kNvlink3, {"A100-SXM4-80GB", "A100-SXM-80GB"}},
      {"A100-PCIe-40GB", 40960, 312, 19.5, 0.65, 1555, kPcie4, {"A100-PCIe"}},
      {"A100-PCIe-80GB", 81920, 312, 19.5, 0.65, 1935, kPcie4, {"A100-80GB-PCIe"}},
      {"H100-SXM", 81559, 989, 67, 0.65, 3350, kNvlink4,
       {"H100", "H100-80GB", "H100-SXM5-80GB", "H100-80GB-HBM3"}},
      {"H100-PCIe", 81559, 756, 51, 0.55, 2039, kPcie5, {"H100-PCIe-80GB"}},
      {"H200", 143771, 989, 67, 0.65, 4800, kNvlink4, {"H200-SXM", "H200-141GB"}},
      {"A10", 23028, 125, 31.2, 0.6, 600, kPcie4, {"A10-24GB"}},
      {"L4", 23034, 121, 30.3, 0.5, 300, kPcie4x8, {"L4-24GB"}},
      {"L40S", 46068, 362, 91.6, 0.6, 864, kPcie4, {"L40S-48GB"}},
      {"RTX-4090", 24564, 165, 82.6, 0.85, 1008, kNoPeer, {"4090", "GeForce-RTX-4090"}},
      {"RTX-3090", 24576, 71, 35.6, 0.85, 936, kNoPeer, {"3090", "GeForce-RTX-3090"}},
  };
}
// clang-format on

std::vector<Card> make_cards() {
  std::vector<Card> cards;
  std::vector<Row> table = rows();
  for (Row& row : table) {
    cards.push_back({.name = row.name,
                     .aliases = std::move(row.aliases),
                     .memory_bytes = row.mebibytes << 20,
                     .bf16_flops = row.bf16 * kTera,
                     .fp32_flops = row.fp32 * kTera,
                     .sustained = row.sustained,
                     .memory_bandwidth = row.bandwidth * kGiga,
                     .link_bandwidth = row.link.gigabytes * kGiga,
                     .host_bandwidth = row.link.host_gigabytes * kGiga,
                     .link = row.link.name});
  }
  return cards;
}

}  // namespace

const std::vector<Card>& known_cards() {
  static const std::vector<Card> cards = make_cards();
  return cards;
}

Card find_card(std::string_view name) {
  std::vector<std::string> names;
  std::string list;
  const std::string wanted = plain(name.starts_with("NVIDIA ") ? name.substr(7) : name);
  for (const Card& card : known_cards()) {
    if (plain(card.name) == wanted) return card;
    for (const std::string& alias : card.aliases) {
      if (plain(alias) == wanted) return card;
    }
    names.push_back(card.name);
    list += (list.empty() ? "" : ", ") + card.name;
  }
  throw ConfigError(detail::concat("--card '", name, "' is not known", did_you_mean(name, names),
                                   "; known: ", list, " (training needs compute capability 8.0 or later)"));
}

}  // namespace apus::train
