#pragma once

#include <span>
#include <string>

#include "apus/base/api.h"

namespace apus {

/// The words with ", " between them, as messages list names; nothing for none.
APUS_API std::string join_words(std::span<const std::string> words);

}  // namespace apus
