#include "apus/base/join_words.h"

namespace apus {

std::string join_words(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace apus
