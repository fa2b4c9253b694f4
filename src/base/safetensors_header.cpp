#include "base/safetensors_header.h"

#include <unordered_set>
#include <utility>

#include "apus/base/error.h"
#include "apus/base/json.h"
#include "apus/base/unicode.h"

namespace apus::detail {
namespace {

// {"__metadata__": {k: v}, NAME: {"dtype": "F32", "shape": [..], "data_offsets": [b, e]}, ...}
class HeaderSax final : public StrictJsonSax {
 public:
  HeaderSax(SafetensorsHeader& out, const std::string& source) : out_(out), source_(source) {}

  bool start_object(std::size_t) override {
    if (level_ == Level::kStart) return enter(Level::kTop);
    if (level_ == Level::kName) return enter(in_metadata_ ? Level::kMetadata : Level::kTensor);
    return unexpected("an object");
  }

  bool key(string_t& name) override {
    if (level_ == Level::kTop) return begin_entry(name);
    if (level_ == Level::kMetadata) {
      if (out_.metadata.contains(name)) fail(concat("__metadata__ has the key '", name, "' twice"));
      field_ = name;
      return true;
    }
    if (!fields_.insert(name).second) fail(concat("has '", name, "' twice"));
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      fail(concat("has an unknown key '", name, "'"));
    field_ = name;
    return true;
  }

  bool string(string_t& value) override {
    if (level_ == Level::kMetadata) {
      out_.metadata.emplace(field_, value);
      return true;
    }
    if (level_ != Level::kTensor || field_ != "dtype") return unexpected("a string");
    const auto dtype = dtype_from_name(value);
    if (!dtype) fail(concat("has the unknown dtype '", value, "'"));
    entry_.spec.dtype = *dtype;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::kTensor || field_ == "dtype") return unexpected("a list");
    return enter(Level::kList);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::kList) return unexpected("a number");
    if (field_ == "data_offsets") {
      offsets_.push_back(value);
      return true;
    }
    if (value > static_cast<uint64_t>(INT64_MAX))
      fail(concat("has a dim of ", value, ", more than any file can hold"));
    entry_.spec.shape.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_float(number_float_t, const string_t& text) override {
    fail(concat("has the number ", text, " in ", field_, ", expected an integer below 2^64"));
  }

  bool number_integer(number_integer_t value) override {
    fail(concat("has the negative number ", value, " in ", field_));
  }

  bool end_array() override { return enter(Level::kTensor); }

  bool end_object() override {
    if (level_ == Level::kTensor) finish_entry();
    return enter(level_ == Level::kTop ? Level::kDone : Level::kTop);
  }

 private:
  enum class Level { kStart, kTop, kName, kTensor, kMetadata, kList, kDone };

  bool enter(Level level) {
    level_ = level;
    return true;
  }

  bool begin_entry(const std::string& name) {
    entry_ = {.spec = {.name = name}};
    fields_.clear();
    offsets_.clear();
    in_metadata_ = name == "__metadata__";
    if (!names_.insert(name).second) fail("appears twice in the header");
    return enter(Level::kName);
  }

  void finish_entry() {
    for (const char* needed : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(needed)) fail(concat("lacks '", needed, "'"));
    }
    if (offsets_.size() != 2) fail(concat("has ", offsets_.size(), " data_offsets, expected 2"));
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    out_.entries.push_back(std::move(entry_));
  }

  bool unexpected(std::string_view what) override {
    fail(concat("the header holds ", what, " where the format has none"));
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw CheckpointError(source_, entry_.spec.name, reason);
  }

  SafetensorsHeader& out_;
  const std::string& source_;
  Level level_ = Level::kStart;
  bool in_metadata_ = false;
  SafetensorsEntry entry_;
  std::string field_;
  std::vector<uint64_t> offsets_;
  std::unordered_set<std::string> fields_;
  std::unordered_set<std::string> names_;
};

}  // namespace

SafetensorsHeader read_safetensors_header(std::string_view json, const std::string& source) {
  const std::size_t valid = valid_utf8_prefix(json);
  if (valid != json.size()) {
    throw CheckpointError(source, "",
                          concat("the header is not UTF-8 (byte ", valid, " of ", json.size(), ")"));
  }
  SafetensorsHeader header;
  HeaderSax handler(header, source);
  try {
    sax_parse(json, source, handler);
  } catch (const DataError& error) {
    throw CheckpointError(source, "", "the header is broken at " + error.reason());
  }
  return header;
}

std::string write_safetensors_header(const std::vector<TensorSpec>& specs,
                                     const std::map<std::string, std::string>& metadata) {
  const auto quoted = [](const std::string& text) { return dump_json(nlohmann::json(text)); };
  std::string out = "{";
  if (!metadata.empty()) out += "\"__metadata__\":" + dump_json(nlohmann::json(metadata));
  int64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    const int64_t end = offset + byte_count(spec);
    out += concat(out.size() > 1 ? "," : "", quoted(spec.name), ":{\"dtype\":\"", dtype_name(spec.dtype),
                  "\",\"shape\":", nlohmann::json(spec.shape).dump(), ",\"data_offsets\":[", offset, ",", end,
                  "]}");
    offset = end;
  }
  out += "}";
  out.append((8 - out.size() % 8) % 8, ' ');
  return out;
}

}  // namespace apus::detail
