#include "de_core/cc/engine/runs/run_version.h"

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <utility>

#include "de_core/cc/engine/base/crc32c.h"

namespace de::engine {
namespace {

constexpr char kTitle[] = "de-core runs 1";
constexpr char kDigits[] = "0123456789abcdef";

/// Returns hexadecimal digits after an x, so that no name is empty or has spaces.
std::string EncodeName(const std::string& name) {
  std::string text = "x";
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool DecodeName(const std::string& text, std::string* name) {
  if (text.empty() || text[0] != 'x' || text.size() % 2 == 0) return false;
  const std::string digits(kDigits);
  for (size_t i = 1; i < text.size(); i += 2) {
    const size_t high = digits.find(text[i]), low = digits.find(text[i + 1]);
    if (high == std::string::npos || low == std::string::npos) return false;
    name->push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

std::string Checksum(const std::string& text) { return Hex32(Crc32c(text.data(), text.size())); }

}  // namespace

const RunRef* RunVersion::LastOf(uint64_t hash) const noexcept {
  const auto after = std::upper_bound(
      last.begin(), last.end(), hash,
      [](uint64_t wanted, const RunRef& run) { return wanted < run.file->hash_begin(); });
  if (after == last.begin()) return nullptr;
  const RunRef& run = *(after - 1);
  return hash <= run.file->hash_last() ? &run : nullptr;
}

RunRef RunVersion::Ref(std::shared_ptr<RunFile> file, uint32_t level, size_t seen,
                       uint64_t replaced) const {
  const RowLayout& stored = file->layout();
  RowLayout layout(stored.key_type(), stored.value_dtype(), stored.dim());
  for (const RowSlot& slot : stored.slots()) {
    const bool dropped = std::find(drops.begin() + static_cast<std::ptrdiff_t>(seen), drops.end(),
                                   slot.owner) != drops.end();
    layout.Append(dropped ? std::string() : slot.owner, {slot.spec});
  }
  RunRef ref;
  ref.file = std::move(file);
  ref.level = level;
  ref.drops = seen;
  ref.replaced = replaced;
  ref.layout = std::move(layout);
  return ref;
}

std::string RunFileName(uint64_t number) {
  char name[32];
  std::snprintf(name, sizeof(name), "%012llu.run", static_cast<unsigned long long>(number));
  return name;
}

std::string EncodeManifest(const RunVersion& version, uint64_t next_number) {
  std::ostringstream out;
  out << kTitle << "\nnext " << next_number << "\n";
  for (const std::string& owner : version.drops) out << "drop " << EncodeName(owner) << "\n";
  for (const RunRef& run : version.upper) {
    out << "upper " << run.file->number() << " " << run.level << " " << run.drops << "\n";
  }
  for (const RunRef& run : version.last) {
    out << "last " << run.file->number() << " " << run.level << " " << run.drops << "\n";
  }
  return out.str() + "end " + Checksum(out.str()) + "\n";
}

Status DecodeManifest(const std::string& text, Manifest* manifest) {
  const auto corrupt = [] { return Status::DataLoss("it is no list of runs, or is corrupt"); };
  const size_t end = text.rfind("end ");
  if (end == std::string::npos ||
      text.substr(end) != "end " + Checksum(text.substr(0, end)) + "\n") {
    return corrupt();
  }
  std::istringstream lines(text.substr(0, end));
  std::string line;
  if (!std::getline(lines, line) || line != kTitle) return corrupt();
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind;
    if (kind == "next") {
      words >> manifest->next_number;
    } else if (kind == "drop") {
      words >> name;
      manifest->drops.emplace_back();
      if (!DecodeName(name, &manifest->drops.back())) return corrupt();
    } else if (kind == "upper" || kind == "last") {
      ManifestRun run;
      run.is_last = kind == "last";
      words >> run.number >> run.level >> run.drops;
      if (run.drops > manifest->drops.size() || run.number >= manifest->next_number) {
        return corrupt();
      }
      manifest->runs.push_back(run);
    } else {
      return corrupt();
    }
    if (words.fail()) return corrupt();
  }
  return Status::Ok();
}

}  // namespace de::engine
