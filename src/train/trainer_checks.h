#pragma once

#include <string>
#include <vector>

#include "apus/data/dataset.h"
#include "apus/nn/causal_lm.h"

namespace apus::train {

/// Refuses a list of active adapters that would not train what is trainable.
/// Throws: ConfigError if one is not on the model, or a trainable adapter is not in the list.
void require_active_adapters(nn::CausalLm& model, const std::vector<std::string>& active);

/// Refuses a reference that is missing or would change while training.
/// Throws: ConfigError if one of the adapters is not on the model or has trainable parameters.
void require_frozen_adapters(nn::CausalLm& model, const std::vector<std::string>& reference);

/// Whether one of these adapters asks for dropout anywhere.
bool has_adapter_dropout(nn::CausalLm& model, const std::vector<std::string>& active);

/// What the rows of a dataset are.
enum class RowKind { kTexts, kPairs };

/// Refuses a dataset of the other kind; an empty one is let through.
/// Throws: ConfigError.
void require_rows(const data::Dataset& dataset, RowKind kind, const data::CollateOptions& collate);

}  // namespace apus::train
