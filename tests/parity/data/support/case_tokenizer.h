#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "apus/base/file.h"
#include "apus/data/tokenizer_config.h"
#include "tests/support/case_folder.h"

namespace apus::data {

/// The text of a tokenizer.json, unpacked if it is the .xz.
inline std::string unpacked_tokenizer_json(const std::filesystem::path& path) {
  if (path.extension() != ".xz") return read_file(path);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(("xz -dc '" + path.string() + "'").c_str(), "r"),
                                                   pclose);
  if (!pipe) throw std::runtime_error("cannot start xz");
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe.get()))
    text.append(buffer.data(), count);
  if (text.empty()) throw std::runtime_error("xz gave nothing for " + path.string());
  return text;
}

/// The tokenizer of a name that other cases refer to (tokenizer/NAME of the root in use, else the committed
/// one), without its chat template.
inline TokenizerFolder case_tokenizer(const std::string& name) {
  namespace fs = std::filesystem;
  for (const fs::path& root : {cases::cases_root(), cases::committed_cases_root()})
    for (const char* file : {"tokenizer.json", "tokenizer.json.xz"}) {
      const fs::path path = root / "tokenizer" / name / file;
      if (!fs::exists(path)) continue;
      TokenizerFolder folder;
      folder.tokenizer = Tokenizer::from_json(unpacked_tokenizer_json(path), path.string());
      folder.config = load_tokenizer_config(path.parent_path());
      const auto id_of = [&](const std::optional<std::string>& token) {
        return token ? folder.tokenizer->token_to_id(*token) : std::nullopt;
      };
      folder.bos_id = id_of(folder.config.bos_token);
      folder.eos_id = id_of(folder.config.eos_token);
      folder.pad_id = id_of(folder.config.pad_token);
      return folder;
    }
  throw std::runtime_error("no tokenizer of the name " + name + " among the cases");
}

}  // namespace apus::data
