#include "apus/train/cards.h"

#include <cctype>

#include "apus/base/error.h"
#include "apus/base/nearest_name.h"

namespace apus::train {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;
constexpr int64_t kMebibyte = int64_t{1} << 20;

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
// 2024), A10, L4, L40S, V100 (their product briefs), GeForce RTX 3090 and 4090 (Ampere GA102 and Ada white
// papers; dense bf16 with fp32 accumulation, which is half of the fp16-accumulation rate on GeForce).
// memory_bytes is what nvidia-smi shows. NVLink rates are per direction: half of the sheet's total; PCIe 4
// x16 and 5 x16 carry about 25 and 50 GB/s of payload. `sustained` is what large bf16 GEMMs reach: H200
// measured here (620 to 660 of 989 TF/s at its power cap); the rest from public GEMM benchmarks of cuBLAS,
// rounded down.
std::vector<Card> make_cards() {
  const auto memory = [](int64_t mebibytes) { return mebibytes * kMebibyte; };
  return {
      {"A100-40GB",
       {"A100", "A100-SXM4-40GB", "A100-SXM-40GB"},
       memory(40960),
       312 * kTera,
       19.5 * kTera,
       0.75,
       1555 * kGiga,
       300 * kGiga,
       "NVLink 3"},
      {"A100-80GB",
       {"A100-SXM4-80GB", "A100-SXM-80GB"},
       memory(81920),
       312 * kTera,
       19.5 * kTera,
       0.75,
       2039 * kGiga,
       300 * kGiga,
       "NVLink 3"},
      {"A100-PCIe-40GB",
       {"A100-PCIe"},
       memory(40960),
       312 * kTera,
       19.5 * kTera,
       0.65,
       1555 * kGiga,
       25 * kGiga,
       "PCIe 4 x16"},
      {"A100-PCIe-80GB",
       {},
       memory(81920),
       312 * kTera,
       19.5 * kTera,
       0.65,
       1935 * kGiga,
       25 * kGiga,
       "PCIe 4 x16"},
      {"H100-SXM",
       {"H100", "H100-80GB", "H100-SXM5-80GB", "H100-80GB-HBM3"},
       memory(81559),
       989 * kTera,
       67 * kTera,
       0.65,
       3350 * kGiga,
       450 * kGiga,
       "NVLink 4"},
      {"H100-PCIe",
       {"H100-PCIe-80GB"},
       memory(81559),
       756 * kTera,
       51 * kTera,
       0.55,
       2039 * kGiga,
       50 * kGiga,
       "PCIe 5 x16"},
      {"H200",
       {"H200-SXM", "H200-141GB"},
       memory(143771),
       989 * kTera,
       67 * kTera,
       0.65,
       4800 * kGiga,
       450 * kGiga,
       "NVLink 4"},
      {"A10",
       {"A10-24GB"},
       memory(23028),
       125 * kTera,
       31.2 * kTera,
       0.6,
       600 * kGiga,
       25 * kGiga,
       "PCIe 4 x16"},
      {"L4",
       {"L4-24GB"},
       memory(23034),
       121 * kTera,
       30.3 * kTera,
       0.5,
       300 * kGiga,
       12.5 * kGiga,
       "PCIe 4 x8"},
      {"L40S",
       {"L40S-48GB"},
       memory(46068),
       362 * kTera,
       91.6 * kTera,
       0.6,
       864 * kGiga,
       25 * kGiga,
       "PCIe 4 x16"},
      {"RTX-4090",
       {"4090", "GeForce-RTX-4090"},
       memory(24564),
       165 * kTera,
       82.6 * kTera,
       0.85,
       1008 * kGiga,
       20 * kGiga,
       "PCIe 4 x16 without peer access"},
      {"RTX-3090",
       {"3090", "GeForce-RTX-3090"},
       memory(24576),
       71 * kTera,
       35.6 * kTera,
       0.85,
       936 * kGiga,
       20 * kGiga,
       "PCIe 4 x16 without peer access"},
      {"V100-32GB",
       {"V100", "V100-SXM2-32GB"},
       memory(32768),
       0.0,
       15.7 * kTera,
       0.85,
       900 * kGiga,
       150 * kGiga,
       "NVLink 2"},
      {"V100-16GB",
       {"V100-SXM2-16GB"},
       memory(16384),
       0.0,
       15.7 * kTera,
       0.85,
       900 * kGiga,
       150 * kGiga,
       "NVLink 2"},
  };
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
  throw ConfigError(
      detail::concat("--card '", name, "' is not known", did_you_mean(name, names), "; known: ", list));
}

void require_bf16(const Card& card) {
  APUS_CHECK(card.bf16_flops > 0, ConfigError, card.name,
             " has no bfloat16 arithmetic, but the job computes in it; give --torch_dtype float32 (half of "
             "the speed, "
             "twice the memory), or plan for a newer card");
}

}  // namespace apus::train
