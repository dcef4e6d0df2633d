#include "de_core/cc/kernels/files/snapshot_json.h"

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace de::kernels {
namespace {

/// Returns the length in bytes of the UTF-8 character at the start of the text; 0 if it is invalid.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto tail = [&](size_t count, uint32_t first, uint32_t least) -> size_t {
    if (text.size() < count) return 0;
    uint32_t point = first;
    for (size_t i = 1; i < count; ++i) {
      if ((byte(i) & 0xc0) != 0x80) return 0;
      point = point << 6 | (byte(i) & 0x3fU);
    }
    return point < least || point > 0x10ffff || (point >= 0xd800 && point < 0xe000) ? 0 : count;
  };
  if (byte(0) < 0x80) return 1;
  if (byte(0) >> 5 == 6) return tail(2, byte(0) & 0x1fU, 0x80);
  if (byte(0) >> 4 == 14) return tail(3, byte(0) & 0x0fU, 0x800);
  if (byte(0) >> 3 == 30) return tail(4, byte(0) & 0x07U, 0x10000);
  return 0;
}

constexpr const char* kInitializerKinds[] = {
    "zeros", "constant", "uniform", "normal", "truncated_normal", "row", "quantile"};

std::string InitializerJson(const engine::InitializerOptions& options) {
  return absl::StrCat("{\"kind\": \"", kInitializerKinds[static_cast<size_t>(options.kind)],
                      "\", \"a\": ", JsonNumber(options.a), ", \"b\": ", JsonNumber(options.b),
                      ", \"seed\": ", options.seed, ", \"table\": ", options.table.size(), "}");
}

}  // namespace

std::string JsonText(std::string_view text) {
  std::string json = "\"";
  for (std::string_view rest = text; !rest.empty();) {
    const size_t size = CharacterBytes(rest);
    if (size == 0) {
      return absl::StrCat("{\"hex\": \"",
                          absl::BytesToHexString(absl::string_view(text.data(), text.size())),
                          "\"}");
    }
    const char byte = rest[0];
    if (byte == '"' || byte == '\\') {
      json += '\\';
      json += byte;
    } else if (static_cast<uint8_t>(byte) < 0x20) {
      absl::StrAppend(&json, absl::StrFormat("\\u%04x", static_cast<unsigned>(byte)));
    } else {
      json.append(rest.substr(0, size));
    }
    rest.remove_prefix(size);
  }
  return json + '"';
}

std::string JsonNumber(double number) {
  return std::isfinite(number) ? absl::StrFormat("%.17g", number) : "null";
}

std::string InfoJson(const engine::SnapshotReader& reader, bool own) {
  const engine::SnapshotHeader& header = reader.header();
  const engine::RowLayout& layout = header.layout;
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  std::string slots;
  for (const engine::RowSlot& slot : layout.slots()) {
    absl::StrAppend(&slots, slots.empty() ? "" : ", ", "{\"owner\": ", JsonText(slot.owner),
                    ", \"name\": ", JsonText(slot.spec.name), ", \"dtype\": \"",
                    engine::NameOf(slot.spec.dtype), "\", \"width\": ", slot.spec.width,
                    ", \"initial\": ", JsonNumber(slot.spec.initial), ", \"offset\": ", slot.offset,
                    "}");
  }
  std::string metadata;
  for (const auto& [key, value] : header.metadata) {
    if (!own && key.rfind("de.", 0) == 0) continue;
    absl::StrAppend(&metadata, metadata.empty() ? "" : ", ", JsonText(key), ": ", JsonText(value));
  }
  const bool base = header.kind == engine::SnapshotKind::kBase;
  return absl::StrCat(
      "{\"kind\": \"", base ? "base" : "delta", "\", \"id\": \"", engine::HexOf(header.id),
      "\", \"parent\": ", base ? "null" : absl::StrCat("\"", engine::HexOf(header.parent), "\""),
      ", \"sequence\": ", header.sequence, ", \"replaces\": ", flag(header.replaces),
      ", \"created_micros\": ", header.created_micros, ", \"key_dtype\": \"",
      engine::NameOf(layout.key_type()), "\", \"value_dtype\": \"",
      engine::NameOf(layout.value_dtype()), "\", \"reads_as\": \"",
      engine::NameOf(header.reads_as()), "\", \"dim\": ", layout.dim(),
      ", \"row_bytes\": ", layout.stride(), ", \"slots\": [", slots,
      "], \"values_only\": ", flag(header.values_only),
      ", \"initializer\": ", InitializerJson(header.initializer), ", \"metadata\": {", metadata,
      "}, \"rows\": ", reader.rows(), ", \"tombstones\": ", reader.tombstones(),
      ", \"sections\": ", reader.sections().size(), ", \"bytes\": ", reader.file_bytes(),
      ", \"string_bytes\": ", reader.string_bytes(), ", \"contents_crc\": ", reader.contents_crc(),
      "}");
}

}  // namespace de::kernels
