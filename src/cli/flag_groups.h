#pragma once

#include <string>
#include <vector>

#include "apus/cli/flag_table.h"

namespace apus::cli {

/// The rows of training_flags(), a heading of the help each. Groups of one call carry their own headings.
std::vector<Flag> model_flags();
std::vector<Flag> lora_flags();
std::vector<Flag> full_flags();
std::vector<Flag> data_flags();
std::vector<Flag> loop_flags();
std::vector<Flag> optimizer_flags();
std::vector<Flag> preference_flags();
std::vector<Flag> strategy_flags();
std::vector<Flag> quantization_flags();
std::vector<Flag> output_flags();
std::vector<Flag> inference_flags();
std::vector<Flag> python_flags();

/// A row of a flag that is obeyed.
Flag acts(std::string name, FlagKind kind, std::string default_text, std::string help);

/// A row of a flag that is not built yet; `words` mean the same as the default.
Flag not_yet(std::string name, FlagKind kind, std::string default_text, std::string help,
             std::vector<std::string> words = {});

/// The same row with other names for it.
Flag also(std::vector<std::string> aliases, Flag flag);

/// The same row, which takes only these words.
Flag among(std::vector<std::string> words, Flag flag);

/// The same row, for these tasks alone.
Flag for_tasks(std::vector<std::string> tasks, Flag flag);

/// The same rows, for this --train_type alone.
std::vector<Flag> for_train_type(const std::string& train_type, std::vector<Flag> flags);

/// The rows under one heading.
std::vector<Flag> grouped(const std::string& heading, std::vector<Flag> flags);

}  // namespace apus::cli
