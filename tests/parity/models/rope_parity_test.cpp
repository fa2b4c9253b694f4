// Every case of kind "rope": frequencies, attention factor and one row of cosines and sines against
// transformers.
#include <ATen/ops/tensor.h>

#include <nlohmann/json.hpp>
#include <set>

#include "apus/base/json.h"
#include "apus/base/support_matrix.h"
#include "apus/models/rope.h"
#include "apus/models/rope_config.h"
#include "tests/support/case_folder.h"
#include "tests/support/tensor_checks.h"

namespace apus::models {
namespace {

using namespace apus::testing;
namespace fs = std::filesystem;
using nlohmann::json;

bool is_rope_file(const fs::path& path) {
  if (path.extension() != ".json") return false;
  const json file = load_json_file(path);
  return file.is_object() && file.contains("cases") && file["cases"].is_array() && !file["cases"].empty() &&
         file["cases"].front().contains("inv_freq");
}

std::string type_of(const json& item) {
  const json scaling = item.value("rope_scaling", json());
  if (!scaling.is_object()) return "default";
  return scaling.value("rope_type", scaling.value("type", std::string("default")));
}

at::Tensor values(const json& item, const char* key) {
  return at::tensor(item.at(key).get<std::vector<double>>(), at::kDouble);
}

void check_row(const json& item, const ops::RotaryTables& tables, int64_t row) {
  const at::Tensor inv_freq = values(item, "inv_freq");
  const double place = item.at("position").get<double>();
  const at::Tensor allowed = inv_freq * (1e-6 * place) + 1e-6;
  const int64_t half = inv_freq.numel();
  const auto check = [&](const at::Tensor& found_H, const char* key) {
    const at::Tensor wanted = values(item, key);
    for (const int64_t first : {int64_t{0}, half}) {
      const at::Tensor off = (found_H.narrow(0, first, half).to(at::kDouble) - wanted).abs();
      EXPECT_TRUE((off <= allowed).all().item<bool>()) << key << ": largest difference " << largest(off);
    }
  };
  check(tables.cos_TH[row], "cos_row");
  check(tables.sin_TH[row], "sin_row");
}

void check_case(const json& item) {
  const auto head_dim = item.at("head_dim").get<int64_t>();
  const auto longest = item.at("max_position_embeddings").get<int64_t>();
  const RopeConfig config = parse_rope(item, {.head_dim = head_dim, .max_position_embeddings = longest});
  const ops::RopeShape shape{.head_dim = head_dim, .theta = config.theta, .max_position_embeddings = longest};
  const bool has_length = item.contains("seq_len") && !item["seq_len"].is_null();
  const int64_t length = has_length ? item["seq_len"].get<int64_t>() : 0;
  const ops::RopeFrequencies found = ops::rope_frequencies(config.scaling, shape, length);
  expect_close(found.inv_freq, values(item, "inv_freq"), {.relative = 1e-6}, "inv_freq");
  const double factor = item.at("attention_factor").get<double>();
  EXPECT_NEAR(found.attention_factor, factor, 1e-7 * factor);
  const auto position = item.at("position").get<int64_t>();
  check_row(item,
            ops::rotary_tables(at::tensor({position}, at::kLong), found.inv_freq, found.attention_factor,
                               at::kFloat),
            0);
  constexpr int64_t kMostRows = 4096;
  if (has_length && length <= kMostRows && position < length) {
    Rope rope(shape, config.scaling);
    check_row(item, rope.tables(*nn::RowLayout::packed({length}), at::kCPU, at::kFloat), position);
  }
}

TEST(RopeParity, FrequenciesAndTablesEqualTransformers) {
  cases::NotRunCases not_run;
  int run = 0;
  std::set<std::string> types;
  for (const fs::path& path : cases::find_case_files("rope", is_rope_file)) {
    const json file = load_json_file(path);
    for (const json& item : file["cases"]) {
      const std::string name = cases::case_name(path) + " " + item.value("name", "");
      SCOPED_TRACE(name);
      const std::string type = type_of(item);
      const SupportEntry* entry = find_support("rope type", type);
      if (entry && entry->status == Support::kNotYet) {
        not_run.add(name, "rope type " + type);
        continue;
      }
      check_case(item);
      types.insert(type);
      ++run;
    }
  }
  EXPECT_TRUE(run + not_run.count() > 0 || !fs::exists(cases::cases_root() / "rope"));
  if (cases::cases_root() != cases::committed_cases_root()) return;
  EXPECT_EQ(run, 27);
  EXPECT_EQ(types, (std::set<std::string>{"default", "dynamic", "linear", "llama3", "longrope", "yarn"}));
}

}  // namespace
}  // namespace apus::models
