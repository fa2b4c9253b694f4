#include "apus/checkpoint/full_weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "apus/base/file.h"
#include "apus/base/json.h"
#include "apus/base/safetensors.h"
#include "apus/models/tensor_dtype.h"
#include "checkpoint/merge_adapter_companions.h"

namespace apus::checkpoint {
namespace {

namespace fs = std::filesystem;
using memory::FrozenGroup;
using memory::ParamGroup;
using nn::NamedParameter;

/// A piece of the model that is gathered in one call, and the parameters that it brings.
struct Piece {
  std::vector<NamedParameter> parameters;  ///< shapes and dtypes; values once gathered
  std::function<std::vector<NamedParameter>()> gather;
};

at::ScalarType saved_dtype(const at::Tensor& tensor, const FullWeightsOptions& options) {
  return at::isFloatingType(tensor.scalar_type()) ? options.dtype : tensor.scalar_type();
}

int64_t saved_bytes(const std::vector<NamedParameter>& parameters, const FullWeightsOptions& options) {
  int64_t bytes = 0;
  for (const NamedParameter& parameter : parameters) {
    bytes += parameter.tensor.numel() *
             static_cast<int64_t>(c10::elementSize(saved_dtype(parameter.tensor, options)));
  }
  return bytes;
}

/// All ranks' ranges on the device where the engine computes, wherever the own one lies.
at::Tensor gathered(comm::Communicator& shard, int64_t elements, const at::Tensor& own, at::Device device) {
  const at::Tensor near = own.to(device);
  const at::Tensor full = at::empty({elements}, near.options());
  if (elements > 0) shard.all_gather(full, near)->wait();
  return full;
}

/// A trainable group's values, flat: the parameters where they have the wanted dtype, else the masters.
at::Tensor flat_values(const ParamGroup& group, comm::Communicator& shard, at::ScalarType dtype) {
  const bool as_they_are = group.dtype() == dtype;
  if (as_they_are && !group.buffer()) return group.flat_params();
  if (!group.options().shard_optimizer) return group.masters();
  return gathered(shard, group.layout().padded_elements(), as_they_are ? group.own_params() : group.masters(),
                  group.device());
}

std::vector<NamedParameter> listed(const std::vector<memory::GroupParameter>& parameters) {
  std::vector<NamedParameter> list;
  for (const memory::GroupParameter& parameter : parameters)
    list.push_back({parameter.name, parameter.tensor});
  return list;
}

Piece trainable_piece(const ParamGroup& group, comm::Communicator& shard, at::ScalarType dtype) {
  return {listed(group.parameters()), [&group, &shard, dtype] {
            const at::Tensor flat = flat_values(group, shard, dtype);
            std::vector<NamedParameter> values = listed(group.parameters());
            for (size_t i = 0; i < values.size(); ++i) {
              const auto range = group.layout().range_of(static_cast<int64_t>(i));
              values[i].tensor = flat.slice(0, range.begin, range.end).view(values[i].tensor.sizes());
            }
            return values;
          }};
}

Piece frozen_piece(FrozenGroup& group, comm::Communicator& shard) {
  return {listed(group.parameters()), [&group, &shard] {
            const at::Tensor bytes =
                gathered(shard, group.buffer().bytes(), group.buffer().shard(), group.buffer().device());
            std::vector<NamedParameter> values = listed(group.parameters());
            for (size_t i = 0; i < values.size(); ++i) {
              at::Tensor& tensor = values[i].tensor;
              const int64_t begin = group.layout().range_of(static_cast<int64_t>(i)).begin;
              tensor = bytes.slice(0, begin, begin + static_cast<int64_t>(tensor.nbytes()))
                           .view(tensor.scalar_type())
                           .view(tensor.sizes());
            }
            return values;
          }};
}

/// All parameters, each in one piece, those of a unit together and in the same order on every rank.
std::vector<Piece> pieces_of(parallel::ShardedModel& model, at::ScalarType dtype) {
  comm::Communicator& shard = *model.units().ranks().shard;
  std::vector<Piece> pieces;
  std::set<std::string> cut;
  const auto add = [&](Piece piece) {
    for (const NamedParameter& parameter : piece.parameters) cut.insert(parameter.name);
    pieces.push_back(std::move(piece));
  };
  for (const auto& group : model.groups()) add(trainable_piece(*group, shard, dtype));
  for (const auto& group : model.units().frozen_groups()) add(frozen_piece(*group, shard));
  for (const NamedParameter& parameter : model.model().named_parameters()) {
    if (cut.contains(parameter.name)) continue;
    pieces.push_back({{parameter}, [parameter] { return std::vector<NamedParameter>{parameter}; }});
  }
  return pieces;
}

/// Which file a piece goes into.
std::vector<size_t> cut_into_files(const std::vector<Piece>& pieces, const FullWeightsOptions& options) {
  std::vector<size_t> files;
  size_t file = 0;
  int64_t used = 0;
  for (const Piece& piece : pieces) {
    const int64_t bytes = saved_bytes(piece.parameters, options);
    if (used > 0 && used + bytes > options.max_shard_bytes) {
      ++file;
      used = 0;
    }
    used += bytes;
    files.push_back(file);
  }
  return files;
}

std::string file_name(size_t index, size_t count) {
  if (count == 1) return "model.safetensors";
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name.data();
}

/// Rank 0's side: takes tensors and writes file after file.
class WeightFiles {
 public:
  WeightFiles(fs::path folder, size_t count, const FullWeightsOptions& options)
      : folder_(std::move(folder)), count_(count), options_(options) {}

  void add(const NamedParameter& parameter) {
    const std::string name =
        options_.checkpoint_name ? options_.checkpoint_name(parameter.name) : parameter.name;
    const at::Tensor source = parameter.tensor.detach();
    at::Tensor value = source.to(at::kCPU, saved_dtype(source, options_)).contiguous();
    // What was only viewed must not outlive the gathered group.
    if (value.is_same(source) || value.is_alias_of(source)) value = value.clone();
    total_ += static_cast<int64_t>(value.nbytes());
    pending_[name] = std::move(value);
  }

  void finish_file(size_t index) {
    std::vector<TensorView> views;
    for (const auto& [name, tensor] : pending_) {
      views.push_back({name,
                       models::stored_dtype(tensor.scalar_type()),
                       tensor.sizes().vec(),
                       {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}});
      places_[name] = file_name(index, count_);
    }
    write_safetensors(folder_ / file_name(index, count_), views);
    pending_.clear();
  }

  void finish() {
    if (count_ > 1) {
      const nlohmann::json index = {{"metadata", {{"total_size", total_}}}, {"weight_map", places_}};
      write_file_atomic(folder_ / "model.safetensors.index.json", dump_json(index, {.indent = 2}) + "\n");
    }
    if (!options_.companions.empty()) {
      for (const Companion& file : companions_of(options_.companions, folder_).files)
        copy_companion(file, folder_);
    }
    nlohmann::ordered_json config = nlohmann::ordered_json::parse(options_.config_json);
    const char* const narrow = options_.dtype == at::kHalf ? "float16" : "bfloat16";
    const std::string dtype = options_.dtype == at::kFloat ? "float32" : narrow;
    config[config.contains("dtype") ? "dtype" : "torch_dtype"] = dtype;
    write_file_atomic(folder_ / "config.json", dump_json(config, {.indent = 2}) + "\n");
  }

 private:
  fs::path folder_;
  size_t count_;
  const FullWeightsOptions& options_;
  std::map<std::string, at::Tensor> pending_;
  nlohmann::json places_ = nlohmann::json::object();
  int64_t total_ = 0;
};

}  // namespace

int64_t full_weights_bytes(parallel::ShardedModel& model, const FullWeightsOptions& options) {
  int64_t bytes = 0;
  for (const Piece& piece : pieces_of(model, options.dtype)) bytes += saved_bytes(piece.parameters, options);
  return bytes;
}

void write_full_weights(const fs::path& folder, parallel::ShardedModel& model,
                        const FullWeightsOptions& options) {
  const at::NoGradGuard no_grad;
  model.finish_update();
  const bool first = model.dp().rank() == 0;
  const std::vector<Piece> pieces = pieces_of(model, options.dtype);
  const std::vector<size_t> files = cut_into_files(pieces, options);
  const size_t count = files.empty() ? 1 : files.back() + 1;
  WeightFiles output(folder, count, options);
  std::exception_ptr failed;  // the others are in the collectives all the same
  const auto on_first = [&](const auto& work) {
    if (!first || failed) return;
    try {
      work();
    } catch (const std::exception&) {
      failed = std::current_exception();
    }
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::vector<NamedParameter> values = pieces[i].gather();
    on_first([&] {
      for (const NamedParameter& parameter : values) output.add(parameter);
      if (i + 1 == pieces.size() || files[i + 1] != files[i]) output.finish_file(files[i]);
    });
  }
  on_first([&] { output.finish(); });
  if (failed) std::rethrow_exception(failed);
}

}  // namespace apus::checkpoint
