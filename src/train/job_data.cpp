#include "train/job_data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/log.h"
#include "apus/data/columns.h"
#include "apus/data/dataset_source.h"
#include "apus/data/template_library.h"
#include "apus/data/tokenizer.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

/// Whether every file can be opened more than once.
bool are_plain_files(const std::vector<std::string>& files) {
  return std::all_of(files.begin(), files.end(), [](const std::string& file) {
    std::error_code absent;
    return fs::is_regular_file(data::parse_dataset_source(file, "--dataset").path, absent);
  });
}

data::SftPrepareOptions text_options(const JobOptions& options, const data::DpoPrepareOptions& dpo,
                                     data::DataTask task) {
  const bool is_text = task == data::DataTask::kPretrain;
  return {.read = dpo.read,
          .encode = {.task = is_text ? data::SftTask::kPretrain : data::SftTask::kChat,
                     .system = dpo.encode.system,
                     .loss_scale = data::parse_loss_scale(options.loss_scale),
                     .columns = dpo.encode.columns,
                     .clock = dpo.encode.clock},
          .workers = dpo.workers};
}

data::DpoPrepareOptions pair_options(const JobOptions& options, DatasetPart part,
                                     const JobDataContext& context) {
  data::DpoPrepareOptions prepare =
      prepare_options(options, part, context.max_length.value_or(0), *context.clock);
  prepare.read.max_length = context.max_length;
  prepare.read.cache_folder = context.cache_folder;
  prepare.read.none_usable = context.none_usable;
  return prepare;
}

}  // namespace

ModelLimits read_model_limits(const JobOptions& options, const data::TokenizerFolder& tokenizer,
                              Logger& logger) {
  ModelLimits limits{.max_length = tokenizer.config.model_max_length};
  const fs::path path = fs::path(options.model) / "config.json";
  if (fs::exists(path)) {
    const nlohmann::json json = load_json_file(path);
    const JsonView config(json, path.string());
    limits.positions = config.find<int64_t>("max_position_embeddings");
    limits.hidden_size = config.get_or<int64_t>("hidden_size", 0);
  }
  if (options.max_model_len) limits.positions = options.max_model_len;
  if (limits.positions) limits.max_length = limits.positions;
  const std::string warning = length_warning(options.max_length, limits.positions);
  if (!warning.empty()) logger.warning(warning);
  if (options.max_length) limits.max_length = options.max_length;
  return limits;
}

void require_folder(const std::string& folder, const char* flag) {
  std::error_code absent;
  if (fs::is_directory(folder, absent)) return;
  throw ConfigError(detail::concat(
      flag, " ", folder,
      fs::exists(folder, absent) ? " is a file; name the model's folder, with config.json and weights"
                                 : ": there is no such folder; it would hold a model, with config.json"));
}

data::TokenizerFolder load_job_tokenizer(const JobOptions& options, Logger& logger) {
  require_folder(options.model, "--model");
  data::TokenizerFolder folder = data::load_tokenizer_folder(options.model);
  const data::TemplateChoice choice = data::choose_template(options.chat_template, folder);
  for (const std::string& warning : choice.warnings) logger.warning(warning);
  return data::with_template(std::move(folder), choice);
}

data::DataTask job_data_task(const JobOptions& options) {
  if (options.task == "dpo") return data::DataTask::kDpo;
  const data::DataTask text = options.task == "pt" ? data::DataTask::kPretrain : data::DataTask::kChat;
  if (!are_plain_files(options.dataset)) return text;
  const data::ColumnMap columns =
      options.columns.empty() ? data::ColumnMap() : data::ColumnMap::parse(options.columns);
  const data::DataTask found = data::find_data_task(options.dataset, columns);
  APUS_CHECK(found != data::DataTask::kDpo, ConfigError, "--dataset ", options.dataset.front(),
             " holds preference pairs, and this command trains ", options.task,
             "; run `apus dpo`, or give rows of the task's own shape");
  return found == data::DataTask::kTokenRows ? found : text;
}

std::shared_ptr<const data::Dataset> PreparedRows::rows() const {
  if (pairs) return pairs;
  return texts;
}

std::string PreparedRows::first_row(const data::Tokenizer& tokenizer) const {
  return pairs ? data::describe_first_pair(*pairs, tokenizer) : data::describe_first_row(*texts, tokenizer);
}

data::RowReadOptions read_options(const JobOptions& options, DatasetPart part,
                                  const JobDataContext& context) {
  return pair_options(options, part, context).read;
}

PreparedRows prepare_rows(const JobOptions& options, DatasetPart part, const JobDataContext& context) {
  const data::DpoPrepareOptions dpo = pair_options(options, part, context);
  PreparedRows prepared{.read = dpo.read};
  switch (context.task) {
    case data::DataTask::kDpo:
      prepared.pairs = data::prepare_dpo(*context.tokenizer, dpo, *context.logger);
      break;
    case data::DataTask::kTokenRows:
      prepared.texts = data::prepare_token_rows(
          {.read = dpo.read, .vocab_size = context.tokenizer->tokenizer->id_limit(), .workers = dpo.workers},
          *context.logger);
      break;
    case data::DataTask::kChat:
    case data::DataTask::kPretrain:
      prepared.texts =
          data::prepare_sft(*context.tokenizer, text_options(options, dpo, context.task), *context.logger);
      break;
  }
  return prepared;
}

data::DatasetSplit split_rows(std::shared_ptr<const data::Dataset> rows, const JobOptions& options) {
  if (options.split_dataset_ratio == 0) return {.train = std::move(rows)};
  return data::split_dataset(
      std::move(rows),
      {.ratio = options.split_dataset_ratio, .seed = static_cast<uint64_t>(options.data_seed.value_or(42))});
}

std::shared_ptr<const data::PackedDataset> pack_rows(std::shared_ptr<const data::Dataset> rows,
                                                     const JobOptions& options,
                                                     std::optional<int64_t> max_length) {
  if (!options.packing) return nullptr;
  const int64_t longest = max_length.value_or(options.packing_length.value_or(0));
  return std::make_shared<data::PackedDataset>(std::move(rows), packing_options(options, longest));
}

std::string JobRows::fingerprint() const {
  const std::string own = train->origin().fingerprint;
  return held_out ? own + " " + held_out->origin().fingerprint : own;
}

nlohmann::ordered_json JobRows::files() const {
  auto files = nlohmann::ordered_json::array();
  for (const PreparedRows* part : {&all, &validation}) {
    if (!part->pairs && !part->texts) continue;
    const data::DatasetOrigin& origin = part->rows()->origin();
    for (size_t f = 0; f < origin.file_fingerprints.size(); ++f) {
      files.push_back({{"flag", part->read.flag},
                       {"file", origin.files[f]},
                       {"rows", origin.rows_read[f]},
                       {"fingerprint", origin.file_fingerprints[f]}});
    }
  }
  return files;
}

JobRows prepare_job_rows(const JobOptions& options, const JobDataContext& context) {
  JobRows rows{.task = context.task, .all = prepare_rows(options, DatasetPart::kTrain, context)};
  const data::DatasetSplit parts = split_rows(rows.all.rows(), options);
  rows.train = rows.unpacked = parts.train;
  rows.held_out = parts.held_out;
  if (!options.val_dataset.empty()) {
    rows.validation = prepare_rows(options, DatasetPart::kHeldOut, context);
    rows.held_out = rows.validation.rows();
  }
  if (const auto packs = pack_rows(rows.train, options, context.max_length)) {
    rows.packing = packs->report();
    rows.train = packs;
  }
  return rows;
}

}  // namespace apus::train
