#include "apus/train/job_settings.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "apus/base/error.h"
#include "apus/base/join_words.h"
#include "apus/data/collator.h"
#include "apus/data/row_stream.h"

namespace apus::train {
namespace {

/// Why the rows of a step are not dealt by cost; empty where they are.
std::string why_in_order(const JobOptions& options, int world) {
  if (!options.train_dataloader_shuffle) return "--train_dataloader_shuffle false";
  if (options.dpo_reduction != "pairs") return "--dpo_reduction " + options.dpo_reduction;
  const bool has_padding = options.padding_free != true && options.per_device_train_batch_size > 1;
  return world > 1 || has_padding ? "" : "one rank, and micro-batches without padding to save";
}

}  // namespace

data::DpoPrepareOptions prepare_options(const JobOptions& options, DatasetPart part, int64_t max_length,
                                        const Clock& clock) {
  data::DpoPrepareOptions prepare;
  const bool held_out = part == DatasetPart::kHeldOut;
  prepare.read.files = held_out ? options.val_dataset : options.dataset;
  prepare.read.flag = held_out ? "--val_dataset" : "--dataset";
  prepare.read.max_length = max_length;
  prepare.read.strict = options.strict;
  if (options.truncation_strategy == "right") prepare.read.truncation = data::Truncation::kRight;
  if (options.truncation_strategy == "left") prepare.read.truncation = data::Truncation::kLeft;
  prepare.read.clock = &clock;
  if (!options.columns.empty()) prepare.encode.columns = data::ColumnMap::parse(options.columns);
  prepare.encode.use_chat_template = options.use_chat_template.value_or(true);
  prepare.encode.system = options.system;
  prepare.encode.clock = &clock;
  prepare.workers = std::max<int64_t>(1, options.dataloader_num_workers);
  return prepare;
}

data::PackingOptions packing_options(const JobOptions& options, int64_t max_length) {
  return {.packing_length = options.packing_length.value_or(max_length),
          .max_length = max_length,
          .seed = static_cast<uint64_t>(options.data_seed.value_or(42)),
          .shuffle = options.train_dataloader_shuffle};
}

std::optional<data::CostModel> balance_model(const JobOptions& options, int world, int64_t hidden_size) {
  if (!why_in_order(options, world).empty()) return std::nullopt;
  return data::CostModel{.attention =
                             hidden_size > 0 ? 1.0 / (12.0 * static_cast<double>(hidden_size)) : 0.0};
}

std::string balance_text(const JobOptions& options, int world) {
  const std::string why = why_in_order(options, world);
  return why.empty()
             ? "Rows of a step: dealt to ranks and micro-batches by their length, so that none waits or is "
               "padded much; which rows form a step stays the same"
             : "Rows of a step: in the order of the epoch (" + why + ")";
}

std::string packing_text(const data::PackingReport& packing, const JobOptions& options) {
  const std::string pairs = options.task == "dpo" ? " (a pair has up to twice --max_length tokens)" : "";
  return detail::concat(
      "Packing: ", packing.rows, " rows in ", packing.packs, " packs of ", options.packing_length.value_or(0),
      " tokens, ", std::llround(100 * packing.efficiency()), " % full; ", packing.oversized,
      " rows are longer and stand alone", pairs, "; a row of --per_device_train_batch_size is a pack");
}

bool reports_to(const JobOptions& options, const std::string& what) {
  return std::find(options.report_to.begin(), options.report_to.end(), what) != options.report_to.end();
}

void check_data(const JobOptions& options, std::optional<int64_t> max_length) {
  const auto open = [](const std::vector<std::string>& files, const char* flag) {
    for (const std::string& file : files) {
      const data::DatasetSource source = data::parse_dataset_source(file, flag);
      std::error_code absent;
      const std::filesystem::file_status status = std::filesystem::status(source.path, absent);
      const bool is_pipe = std::filesystem::exists(status) && std::filesystem::is_other(status);
      if (!is_pipe) data::RowStream(source, {.flag = flag});
    }
  };
  open(options.dataset, "--dataset");
  open(options.val_dataset, "--val_dataset");
  if (!options.packing) return;
  APUS_CHECK(
      max_length || options.packing_length, ConfigError,
      "--packing true: neither --packing_length nor --max_length is given, and the model's files name none");
  APUS_CHECK(!max_length || options.packing_length.value_or(*max_length) >= *max_length, ConfigError,
             "--packing_length ", options.packing_length.value_or(0), " is below the longest row, ",
             max_length.value_or(0),
             " tokens (--max_length, else the model's maximum): raise it, or give a lower "
             "--max_length");
}

std::string length_warning(std::optional<int64_t> max_length, std::optional<int64_t> model_maximum) {
  if (!max_length || !model_maximum || *max_length <= *model_maximum) return "";
  return detail::concat("--max_length ", *max_length, " is above the model's max_position_embeddings ",
                        *model_maximum, ": it was not made for longer sequences");
}

std::string margin_text(const data::DpoDataset& rows, const JobOptions& options) {
  constexpr int64_t kMost = 65'536;
  const PreferenceLoss loss(dpo_options(options).loss);
  if (loss.losses_without_margin().empty()) return "";
  for (int64_t i = 0; i < std::min(rows.size(), kMost); ++i) {
    if (rows.row(i).margin) return loss.margin_note();
  }
  return "";
}

TrainerOptions trainer_options(const JobOptions& options, const data::TokenizerFolder& tokenizer) {
  TrainerOptions trainer;
  trainer.num_train_epochs = options.num_train_epochs;
  trainer.max_steps = options.max_steps;
  trainer.micro_batch_rows = options.per_device_train_batch_size;
  trainer.eval_batch_rows = options.per_device_eval_batch_size;
  trainer.accumulation = options.gradient_accumulation_steps.value_or(1);
  trainer.drop_last = options.dataloader_drop_last;
  trainer.shuffle = options.train_dataloader_shuffle;
  trainer.data_seed = static_cast<uint64_t>(options.data_seed.value_or(options.seed));
  trainer.collate.layout =
      options.padding_free == true ? data::BatchLayout::kPacked : data::BatchLayout::kPadded;
  trainer.collate.pad_id = data::padding_id(tokenizer);
  trainer.loader_workers = options.dataloader_num_workers;
  trainer.prefetch_factor = options.dataloader_prefetch_factor;
  trainer.lr_scheduler_type = options.lr_scheduler_type;
  trainer.lr_scheduler_kwargs = options.lr_scheduler_kwargs;
  trainer.warmup = {.warmup_ratio = options.warmup_ratio, .warmup_steps = options.warmup_steps};
  trainer.update = {.lr = options.learning_rate.value_or(1e-4),
                    .beta1 = options.adam_beta1,
                    .beta2 = options.adam_beta2,
                    .epsilon = options.adam_epsilon,
                    .weight_decay = options.weight_decay,
                    .max_grad_norm = options.max_grad_norm};
  trainer.fp16 = fp16_options(options);
  trainer.metric_for_best_model = options.metric_for_best_model;
  trainer.early_stopping.patience = options.early_stop_interval.value_or(0);
  trainer.save_best = options.load_best_model_at_end;
  trainer.logging_steps = options.logging_steps;
  trainer.save_steps = options.save_steps;
  trainer.eval_steps = options.eval_steps.value_or(options.save_steps);
  return trainer;
}

}  // namespace apus::train
