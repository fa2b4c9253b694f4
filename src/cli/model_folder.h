#pragma once

#include <string>

#include "apus/base/env.h"

namespace apus::cli {

/// The folder that `--model` means: the word itself if it is a folder or no hub id (ORG/NAME), else where the
/// local caches have that model. Those of Hugging Face (HF_HOME, else ~/.cache/huggingface) and ModelScope
/// (MODELSCOPE_CACHE, else ~/.cache/modelscope) are looked at, in this order; nothing is downloaded.
/// Throws:      ConfigError if no cache has it, with the places that were tried and the commands that
/// download it.
std::string resolve_model_folder(const std::string& model, const Environment& environment);

}  // namespace apus::cli
