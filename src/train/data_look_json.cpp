#include <nlohmann/json.hpp>

#include "apus/train/data_look.h"

namespace apus::train {
namespace {

using Json = nlohmann::ordered_json;

Json counts_json(const DatasetLook& look) {
  Json files = Json::array();
  for (const data::FileCounts& file : look.files) {
    files.push_back({{"file", file.file},
                     {"read", file.read},
                     {"whole", file.whole},
                     {"truncated", file.truncated},
                     {"held_out", file.held_out},
                     {"dropped", file.dropped}});
  }
  Json reasons = Json::array();
  for (const auto& [kind, reason] : look.report.reasons())
    reasons.push_back(
        {{"reason", kind}, {"code", reason.code}, {"rows", reason.count}, {"examples", reason.examples}});
  return {{"read", look.report.input()},          {"whole", look.report.whole()},
          {"truncated", look.report.truncated()}, {"held_out", look.report.held_out()},
          {"dropped", look.report.dropped()},     {"by_file", std::move(files)},
          {"by_reason", std::move(reasons)}};
}

Json lengths_json(const data::LengthSummary& lengths) {
  Json percentiles = Json::object();
  for (const auto& [percent, length] : lengths.percentiles) percentiles[std::to_string(percent)] = length;
  Json bins = Json::array();
  for (const data::LengthBin& bin : lengths.histogram)
    bins.push_back({{"from", bin.begin}, {"below", bin.end}, {"sequences", bin.count}});
  return {{"sequences", lengths.sequences},
          {"tokens", lengths.tokens},
          {"trained_tokens", lengths.trained_tokens},
          {"trained_share", lengths.trained_share()},
          {"shortest", lengths.shortest},
          {"mean", lengths.mean()},
          {"longest", lengths.longest},
          {"percentiles", std::move(percentiles)},
          {"histogram", std::move(bins)}};
}

Json samples_json(const std::vector<data::RowSample>& samples) {
  Json rows = Json::array();
  for (const data::RowSample& sample : samples) {
    Json row = {{"place", sample.place}};
    for (const auto& [name, runs] : sample.sequences) {
      row[name] = Json::array();
      for (const data::SampleRun& run : runs)
        row[name].push_back({{"weight", run.weight}, {"tokens", run.tokens}, {"text", run.text}});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json dataset_json(const DatasetLook& look) {
  return {{"rows", counts_json(look)},
          {"lengths", lengths_json(look.lengths)},
          {"rule", look.note},
          {"first_rows", samples_json(look.samples)}};
}

Json packing_json(const PackingLook& packing) {
  return {{"packing_length", packing.packing_length},
          {"rows", packing.report.rows},
          {"packs", packing.report.packs},
          {"tokens", packing.report.tokens},
          {"oversized", packing.report.oversized},
          {"efficiency", packing.report.efficiency()}};
}

Json batches_json(const DataLook& look) {
  const data::BatchSurvey& batches = look.batches;
  return {{"world_size", look.world},
          {"per_device_train_batch_size", look.micro_batch_rows},
          {"gradient_accumulation_steps", look.accumulation},
          {"rows_per_epoch", batches.rows},
          {"steps_per_epoch", batches.steps},
          {"total_steps", look.total_steps},
          {"tokens_per_epoch", batches.tokens},
          {"padding_free", look.without_padding},
          {"padded_tokens_per_epoch", batches.padded_tokens},
          {"padding_share", batches.padding_share()},
          {"largest_micro_batch_tokens", batches.largest},
          {"largest_padded_micro_batch_tokens", batches.largest_padded}};
}

}  // namespace

Json to_json(const DataLook& look) {
  Json json;
  json["task"] = data::data_task_name(look.task);
  json["max_length"] = look.max_length ? Json(*look.max_length) : Json();
  json["dataset"] = dataset_json(look.train);
  json["val_dataset"] = look.held_out ? dataset_json(*look.held_out) : Json();
  json["split_rows"] = look.split_rows;
  json["packing"] = look.packing ? packing_json(*look.packing) : Json();
  json["batches"] = look.train.report.trained() > 0 ? batches_json(look) : Json();
  json["error"] = look.error.empty() ? Json() : Json(look.error);
  return json;
}

}  // namespace apus::train
