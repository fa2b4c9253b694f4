#include "apus/train/data_look.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "apus/base/clock.h"
#include "apus/base/error.h"
#include "apus/base/log.h"
#include "apus/data/prepare.h"
#include "apus/data/tokenizer.h"
#include "apus/data/tokenizer_config.h"
#include "apus/train/job_settings.h"
#include "train/job_data.h"

namespace apus::train {
namespace {

/// Prepared rows with their lengths and first rows.
struct Prepared {
  std::shared_ptr<const data::Dataset> rows = {};  // none: no row is usable
  std::vector<data::RowLengths> lengths = {};
  DatasetLook look = {};
};

template <typename Rows>
Prepared look_of(std::shared_ptr<const Rows> rows, const data::RowReadOptions& read,
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
      : options_(options),
        context_(context),
        tokenizer_(load_job_tokenizer(options, *context.logger)),
        limits_(read_model_limits(options, tokenizer_, *context.logger)) {
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
    look.row_lengths = train.lengths;
    pack(train, look);
    cut(train, look);
    return look;
  }

 private:
  /// With an error where a file has no usable row; without rows where there is none at all.
  Prepared prepare(DatasetPart part, std::string& error) {
    std::optional<data::RowReport> none_usable;
    const JobDataContext surroundings{.task = context_.task,
                                      .tokenizer = &tokenizer_,
                                      .max_length = limits_.max_length,
                                      .clock = context_.clock,
                                      .logger = context_.logger,
                                      .cache_folder = context_.cache_folder,
                                      .none_usable = &none_usable};
    try {
      Prepared prepared = prepared_of(prepare_rows(options_, part, surroundings), part);
      for (const std::string& unusable : prepared.rows->origin().unusable) add_error(unusable, error);
      return prepared;
    } catch (const DataError& refused) {
      if (!none_usable) throw;
      add_error(refused.what(), error);
      const data::RowReadOptions read = read_options(options_, part, surroundings);
      return {.look = {.flag = read.flag, .files = data::count_unusable_files(read), .report = *none_usable}};
    }
  }

  static void add_error(const std::string& more, std::string& error) {
    error += (error.empty() ? "" : "\n") + more;
  }

  Prepared prepared_of(const PreparedRows& rows, DatasetPart part) const {
    const data::Tokenizer& tokenizer = *tokenizer_.tokenizer;
    if (!rows.pairs) return look_of(rows.texts, rows.read, tokenizer, context_.samples);
    const std::string margins = part == DatasetPart::kTrain ? margin_text(*rows.pairs, options_) : "";
    if (!margins.empty()) context_.logger->info(margins);
    return look_of(rows.pairs, rows.read, tokenizer, context_.samples);
  }

  void split(Prepared& train, DataLook& look) const {
    const data::DatasetSplit parts = split_rows(train.rows, options_);
    if (!parts.held_out) return;
    look.split_rows = parts.held_out->size();
    look.train.report = parts.train->origin().report;
    look.train.files = data::counts_of_part(std::move(look.train.files), *parts.train);
    train.lengths = data::lengths_of_part(*parts.train, *train.rows, train.lengths);
    look.train.lengths = data::summarize_lengths(train.lengths);
    train.rows = parts.train;
  }

  void pack(Prepared& train, DataLook& look) const {
    const auto packs = pack_rows(train.rows, options_, limits_.max_length);
    if (!packs) return;
    look.packing = {packing_options(options_, limits_.max_length.value_or(0)).packing_length,
                    packs->report()};
    train.lengths.clear();
    train.rows = packs;
  }

  /// Cuts the first epoch into steps.
  void cut(const Prepared& train, DataLook& look) const {
    look.world = context_.world;
    look.micro_batch_rows = options_.per_device_train_batch_size;
    look.accumulation = options_.gradient_accumulation_steps.value_or(1);
    look.without_padding = options_.padding_free.value_or(false);
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
