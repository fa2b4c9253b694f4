#include "apus/train/data_look.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/log.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer.h"
#include "apus/data/tokenizer_config.h"
#include "apus/train/job_settings.h"

namespace apus::train {
namespace {

namespace fs = std::filesystem;

/// What of a model's config.json matters here, as far as there is one.
struct ModelLimits {
  std::optional<int64_t> max_length;
  std::optional<int64_t> positions = {};
  int64_t hidden_size = 0;
};

ModelLimits limits_of(const fs::path& folder, const data::TokenizerFolder& tokenizer) {
  ModelLimits limits{.max_length = tokenizer.config.model_max_length};
  const fs::path path = folder / "config.json";
  if (!fs::exists(path)) return limits;
  const nlohmann::json json = load_json_file(path);
  const JsonView config(json, path.string());
  limits.positions = config.find<int64_t>("max_position_embeddings");
  if (limits.positions) limits.max_length = limits.positions;
  limits.hidden_size = config.get_or<int64_t>("hidden_size", 0);
  return limits;
}

/// Prepared rows with their lengths and first rows.
struct Prepared {
  std::shared_ptr<const data::Dataset> rows = {};  // none: no row is usable
  std::vector<data::RowLengths> lengths = {};
  DatasetLook look = {};
};

template <typename Rows>
Prepared prepared_of(std::shared_ptr<const Rows> rows, const data::RowReadOptions& read,
                     const data::Tokenizer& tokenizer, int64_t samples) {
  Prepared prepared{.rows = rows, .lengths = data::measure_rows(*rows), .look = {.flag = read.flag}};
  prepared.look.files = data::count_files(*rows, read);
  prepared.look.report = rows->origin().report;
  prepared.look.lengths = data::summarize_lengths(prepared.lengths);
  prepared.look.samples = data::sample_rows(*rows, tokenizer, samples);
  prepared.look.note = rows->origin().note;
  return prepared;
}

/// One look.
class Looker {
 public:
  Looker(const JobOptions& options, const DataLookContext& context)
      : options_(options), context_(context), tokenizer_(data::load_tokenizer_folder(options.model)) {
    limits_ = limits_of(options.model, tokenizer_);
    const std::string warning = length_warning(options.max_length, limits_.positions);
    if (!warning.empty()) context.logger->warning(warning);
    if (options.max_length) limits_.max_length = options.max_length;
    // Settings of DPO alone have no say in other tasks.
    if (context.task != data::DataTask::kDpo) options_.dpo_reduction = JobOptions().dpo_reduction;
    check_data(options_, limits_.max_length);
  }

  DataLook look() {
    DataLook look{.task = context_.task, .max_length = limits_.max_length};
    Prepared train = prepare(DatasetPart::kTrain, look.error);
    if (!options_.val_dataset.empty()) look.held_out = prepare(DatasetPart::kHeldOut, look.error).look;
    look.train = std::move(train.look);
    if (!train.rows) return look;
    split(train, look);
    pack(train, look);
    cut(train, look);
    return look;
  }

 private:
  /// Without rows, and an error, where none is usable.
  Prepared prepare(DatasetPart part, std::string& error) {
    data::DpoPrepareOptions dpo =
        prepare_options(options_, part, limits_.max_length.value_or(kUnbounded), *context_.clock);
    dpo.read.max_length = limits_.max_length;
    dpo.read.cache_folder = context_.cache_folder;
    std::optional<data::RowReport> none_usable;
    dpo.read.none_usable = &none_usable;
    try {
      return prepare_task(dpo, part);
    } catch (const DataError& refused) {
      if (!none_usable) throw;
      error += (error.empty() ? "" : "\n") + std::string(refused.what());
      return {.look = {.flag = dpo.read.flag,
                       .files = data::count_unusable_files(dpo.read),
                       .report = *none_usable}};
    }
  }

  Prepared prepare_task(const data::DpoPrepareOptions& dpo, DatasetPart part) {
    const data::Tokenizer& tokenizer = *tokenizer_.tokenizer;
    if (context_.task == data::DataTask::kDpo) {
      const auto rows = data::prepare_dpo(tokenizer_, dpo, *context_.logger);
      const std::string margins = part == DatasetPart::kTrain ? margin_text(*rows) : "";
      if (!margins.empty()) context_.logger->info(margins);
      return prepared_of(rows, dpo.read, tokenizer, context_.samples);
    }
    if (context_.task == data::DataTask::kTokenRows) {
      const data::TokenRowsPrepareOptions rows{
          .read = dpo.read, .vocab_size = tokenizer.id_limit(), .workers = dpo.workers};
      return prepared_of(data::prepare_token_rows(rows, *context_.logger), rows.read, tokenizer,
                         context_.samples);
    }
    const data::SftPrepareOptions sft{
        .read = dpo.read, .encode = sft_encode_options(dpo.encode), .workers = dpo.workers};
    return prepared_of(data::prepare_sft(tokenizer_, sft, *context_.logger), sft.read, tokenizer,
                       context_.samples);
  }

  data::SftEncodeOptions sft_encode_options(const data::DpoEncodeOptions& dpo) const {
    const bool is_text = context_.task == data::DataTask::kPretrain;
    return {.task = is_text ? data::SftTask::kPretrain : data::SftTask::kChat,
            .system = dpo.system,
            .columns = dpo.columns,
            .clock = dpo.clock};
  }

  void split(Prepared& train, DataLook& look) const {
    if (options_.split_dataset_ratio == 0) return;
    const data::DatasetSplit parts =
        data::split_dataset(train.rows, {.ratio = options_.split_dataset_ratio,
                                         .seed = static_cast<uint64_t>(options_.data_seed.value_or(42))});
    look.split_rows = parts.held_out->size();
    look.train.report = parts.train->origin().report;
    look.train.files = data::counts_of_part(std::move(look.train.files), *parts.train);
    train.lengths = data::lengths_of_part(*parts.train, *train.rows, train.lengths);
    look.train.lengths = data::summarize_lengths(train.lengths);
    train.rows = parts.train;
  }

  void pack(Prepared& train, DataLook& look) const {
    if (!options_.packing) return;
    data::PackingOptions packing =
        packing_options(options_, limits_.max_length.value_or(options_.packing_length.value_or(0)));
    const auto packs = std::make_shared<data::PackedDataset>(train.rows, packing);
    look.packing = {packing.packing_length, packs->report()};
    train.lengths.clear();
    train.rows = packs;
  }

  /// Cuts the first epoch into steps.
  void cut(const Prepared& train, DataLook& look) const {
    look.world = context_.world;
    look.micro_batch_rows = options_.per_device_train_batch_size;
    look.accumulation = options_.gradient_accumulation_steps.value_or(1);
    look.without_padding = options_.padding_free;
    const data::StepPlan plan({.rows = train.rows->size(),
                               .micro_batch_rows = look.micro_batch_rows,
                               .world = look.world,
                               .accumulation = look.accumulation,
                               .drop_last = options_.dataloader_drop_last});
    const data::Sampler sampler({.rows = train.rows->size(),
                                 .seed = static_cast<uint64_t>(options_.data_seed.value_or(42)),
                                 .shuffle = options_.train_dataloader_shuffle});
    look.batches =
        data::survey_batches(*train.rows, train.lengths,
                             {.plan = plan,
                              .sampler = sampler,
                              .balance = balance_model(options_, context_.world, limits_.hidden_size)});
    look.total_steps =
        options_.max_steps > 0 ? options_.max_steps : plan.total_steps(options_.num_train_epochs);
  }

  static constexpr int64_t kUnbounded = INT64_MAX;

  JobOptions options_;
  const DataLookContext& context_;
  data::TokenizerFolder tokenizer_;
  ModelLimits limits_;
};

}  // namespace

DataLook look_at_data(const JobOptions& options, const DataLookContext& context) {
  APUS_CHECK(context.clock && context.logger, ConfigError, "a look needs a clock and a logger");
  return Looker(options, context).look();
}

}  // namespace apus::train
